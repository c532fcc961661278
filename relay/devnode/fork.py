"""The fork whose rules the development chain follows: Prague, from its first block.

Job: the answer of eth_config, from which clients learn which gas rules hold.
Rules: it must agree with `relay.devnode.transactions.gas_needed` and with the header's fields.
Source: EIP-7910; EIP-7840 and 7691 (blobs), EIP-2537, 4788, 2935, 6110, 7002, 7251 (addresses), EIP-2124 (fork id).
Must not know: methods, parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

if TYPE_CHECKING:
    from relay.devnode.chain import Chain

_PRECOMPILES: Final = (
    "ECREC", "SHA256", "RIPEMD160", "ID", "MODEXP", "BN254_ADD", "BN254_MUL", "BN254_PAIRING", "BLAKE2F",
    "KZG_POINT_EVALUATION", "BLS12_G1ADD", "BLS12_G1MSM", "BLS12_G2ADD", "BLS12_G2MSM", "BLS12_PAIRING_CHECK",
    "BLS12_MAP_FP_TO_G1", "BLS12_MAP_FP2_TO_G2",
)  # fmt: skip
"""By address, from 1 on."""

_SYSTEM_CONTRACTS: Final = {
    "BEACON_ROOTS_ADDRESS": "0x000f3df6d732807ef1319fb7b8bb8522d0beac02",
    "CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS": "0x0000bbddc7ce488642fb579f8b00f3a590007251",
    "DEPOSIT_CONTRACT_ADDRESS": "0x00000000219ab540356cbb839cbe05303d7705fa",
    "HISTORY_STORAGE_ADDRESS": "0x0000f90827f1c53a10cb7a02335b175320002935",
    "WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS": "0x00000961ef480eb55e80d19ad83579a64c007002",
}


def config_view(chain: Chain) -> dict[str, Any]:
    """One fork, in force since the genesis block; none is scheduled."""
    genesis = bytes.fromhex(chain.blocks[0].hash[2:])
    current = {
        "activationTime": 0,
        "blobSchedule": {"baseFeeUpdateFraction": 5_007_716, "max": 9, "target": 6},
        "chainId": hex(chain.settings.chain_id),
        "forkId": f"0x{crc32(genesis):08x}",
        "precompiles": {name: f"0x{address:040x}" for address, name in enumerate(_PRECOMPILES, 1)},
        "systemContracts": _SYSTEM_CONTRACTS,
    }
    return {"current": current, "next": None, "last": None}
