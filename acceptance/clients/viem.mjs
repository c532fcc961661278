// viem: `burst` (nonces from its nonce manager), `transfer` (waits for the receipt), `heads` (over WebSocket).

import { createPublicClient, createWalletClient, defineChain, http, parseEther, webSocket } from "viem";
import { nonceManager, privateKeyToAccount } from "viem/accounts";
import { done, settle, task } from "./task.mjs";

const receiver = "0x00000000000000000000000000000000000000aa";
const chain = defineChain({
  id: task.chainId,
  name: "test",
  nativeCurrency: { name: "Ether", symbol: "ETH", decimals: 18 },
  rpcUrls: { default: { http: [task.rpc ?? ""] } },
});

const actions = {
  async burst({ rpc, keys, count }) {
    const sends = keys.flatMap((key) => {
      const client = createWalletClient({ account: privateKeyToAccount(key, { nonceManager }), chain, transport: http(rpc) });
      return Array.from({ length: count }, () => client.sendTransaction({ to: receiver, value: 1n }));
    });
    return settle(sends);
  },

  async transfer({ rpc, keys }) {
    const wallet = createWalletClient({ account: privateKeyToAccount(keys[0]), chain, transport: http(rpc) });
    const reader = createPublicClient({ chain, transport: http(rpc), pollingInterval: 100 });
    const hash = await wallet.sendTransaction({ to: receiver, value: parseEther("0.5") });
    const receipt = await reader.waitForTransactionReceipt({ hash });
    return { hash, status: receipt.status === "success" ? 1 : 0 };
  },

  async heads({ ws, count }) {
    const client = createPublicClient({ chain, transport: webSocket(ws) });
    const numbers = [];
    await new Promise((resolve, reject) => {
      client.watchBlockNumber({
        poll: false,
        onBlockNumber: (number) => numbers.push(Number(number)) === count && resolve(),
        onError: reject,
      });
    });
    return { numbers };
  },
};

done(await actions[task.action](task));
