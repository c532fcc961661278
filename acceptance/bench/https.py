"""Group ``https``: a node behind TLS, its certificate verified by a CA of one's own.

Rules: both contenders verify the chain and the name, speak TLS 1.3 and keep their connections; nginx, whose default
stops at 1.2, is told so.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import trustme

from acceptance.bench import proxies
from acceptance.bench.costs import cpu_table, cpu_us, work
from acceptance.bench.sheet import Findings, ratio
from acceptance.rig.parts import Part

if TYPE_CHECKING:
    from acceptance.bench.turns import Turns
    from acceptance.rig.parts import Rig

CONNECTIONS: Final = 32
TARGET: Final = 1.3
VERIFYING: Final = (
    "proxy_ssl_verify on",
    "proxy_ssl_verify_depth 2",
    "proxy_ssl_name localhost",
    "proxy_ssl_server_name on",
    "proxy_ssl_session_reuse on",
    "proxy_ssl_protocols TLSv1.2 TLSv1.3",
)


async def measure(rig: Rig, turns: Turns) -> Findings:
    """CPU a call."""
    with proxies.cores_apart() as core, TemporaryDirectory() as folder:
        own_ca, certificate = _certified(Path(folder))
        node = await proxies.bench_node(rig, "node", "--tls", certificate)
        by_address = Part(
            node.process, node.url.replace("localhost", "127.0.0.1")
        )  # nginx would take ::1 for a second node
        trusting = f"proxy_ssl_trusted_certificate {own_ca}"
        contenders = {
            "nginx": await proxies.nginx_proxy(rig, by_address, core, Path(folder), *VERIFYING, trusting),
            "relay": await proxies.relay(rig, node, core, upstream__ca_file=own_ca),
        }
        found = await turns.of(work(rig, contenders, CONNECTIONS, turns.seconds))
    cost = cpu_us(found)
    return Findings(
        [
            f"`eth_blockNumber` to a node behind TLS 1.3; chain and name verified, connections kept; {turns}.",
            "",
            *cpu_table(f"{CONNECTIONS} kept connections, https to the node", found),
            "",
            ratio("relay ÷ nginx", cost["relay"] / cost["nginx"], TARGET),
        ]
    )


def _certified(folder: Path) -> tuple[str, str]:
    """Files: the CA's certificate; the node's key and certificate."""
    authority, own_ca, certificate = trustme.CA(), folder / "ca.pem", folder / "node.pem"
    authority.cert_pem.write_to_path(str(own_ca))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    return str(own_ca), str(certificate)
