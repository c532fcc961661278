"""What ``relay dev`` prints: where everything is, who has money, and a command to try.

Job: one text. Must not know: how it is printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.devnode.keys import ENDOWMENT, ETHER, FUNDED, MNEMONIC

if TYPE_CHECKING:
    from relay.devnode.node import DevNode


def welcome(node: DevNode, relay_url: str, ops_url: str) -> str:
    """For a person at a terminal. The first line is the one that programs wait for."""
    websocket = relay_url.replace("http://", "ws://", 1)
    keys = "\n".join(f"  ({number}) {one.address}  {one.key}" for number, one in enumerate(FUNDED))
    receiver = FUNDED[1].address
    return f"""\
relay ready on {relay_url} (upstream {node.url}, ops {ops_url})

  relay      {relay_url}   {websocket}
  chain      {node.url}   (the embedded development chain itself, without the relay)
  chain id   {node.settings.chain_id}
  ops        {ops_url}/livez  /readyz  /metrics

Funded accounts, {ENDOWMENT // ETHER:,} ether each (public test keys: never send real money to them)
{keys}
  mnemonic: {MNEMONIC}

Try it (cast comes with Foundry)
  curl -s {relay_url} -d '{{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}}'
  cast send --rpc-url {relay_url} --private-key {FUNDED[0].key} \\
      --value 1ether {receiver}
"""
