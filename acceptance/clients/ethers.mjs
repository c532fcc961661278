// ethers: `burst` (nonces given, neighbours swapped), `transfer` (waits for the receipt), `heads` (over WebSocket).

import { JsonRpcProvider, Wallet, WebSocketProvider, parseEther } from "ethers";
import { done, settle, swapped, task } from "./task.mjs";

const fees = { gasLimit: 21_000, maxFeePerGas: 20_000_000_000n, maxPriorityFeePerGas: 1_000_000_000n };
const receiver = "0x00000000000000000000000000000000000000aa";

const actions = {
  async burst({ rpc, keys, count, batches }) {
    const provider = new JsonRpcProvider(rpc, undefined, batches ? {} : { batchMaxCount: 1 });
    const sends = [];
    for (const wallet of keys.map((key) => new Wallet(key, provider))) {
      const first = await wallet.getNonce("pending");
      for (const index of swapped(count)) {
        const transfer = { ...fees, to: receiver, value: 1n, nonce: first + index, type: 2 };
        sends.push(wallet.sendTransaction(transfer).then((sent) => sent.hash));
      }
    }
    return settle(sends);
  },

  async transfer({ rpc, keys }) {
    const wallet = new Wallet(keys[0], new JsonRpcProvider(rpc));
    const sent = await wallet.sendTransaction({ to: receiver, value: parseEther("0.5") });
    const receipt = await sent.wait();
    return { hash: sent.hash, status: receipt.status };
  },

  async heads({ ws, count }) {
    const provider = new WebSocketProvider(ws);
    const numbers = [];
    await new Promise((resolve) => {
      provider.on("block", (number) => {
        if (numbers.push(number) === count) resolve();
      });
    });
    return { numbers };
  },
};

done(await actions[task.action](task));
