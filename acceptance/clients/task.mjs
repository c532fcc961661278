// What every script here shares: its task is the JSON of its only argument, its result one line of JSON, the last.

export const task = JSON.parse(process.argv[2]);

/** Wallets' errors as one line each. */
export const text = (error) => String(error?.shortMessage ?? error?.message ?? error).split("\n")[0];

/** 0 … count-1 with neighbours swapped. */
export const swapped = (count) =>
  Array.from({ length: count }, (_, place) => (place % 2 ? place - 1 : Math.min(place + 1, count - 1)));

/** Waits for all; hashes of what was accepted, texts of what was not. */
export async function settle(sends) {
  const outcomes = await Promise.allSettled(sends);
  return {
    hashes: outcomes.filter((one) => one.status === "fulfilled").map((one) => one.value),
    errors: outcomes.filter((one) => one.status === "rejected").map((one) => text(one.reason)),
  };
}

/** Prints the result and ends, whatever is still open. */
export function done(result) {
  process.stdout.write(JSON.stringify(result) + "\n", () => process.exit(0));
}
