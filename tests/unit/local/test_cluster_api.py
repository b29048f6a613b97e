import asyncio
import json
import ssl

import uvloop
from aiohttp import web

from promptgroup_local.cluster.certs import Authority
from promptgroup_local.cluster.nodeagent.api import CONNECTIONS, Api


def kubeconfig(folder, authority, port):
    """A kubeconfig of a client of the server on a port of this machine."""
    client = authority.client("agent", "agent")
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(authority.file)}
    user = {"client-certificate": str(client.certificate), "client-key": str(client.key)}
    path = folder / "kubeconfig"
    path.write_text(json.dumps({"clusters": [{"cluster": cluster}], "users": [{"user": user}]}))
    return path


def test_a_heartbeat_passes_requests_that_have_all_connections(tmp_path):
    async def test():
        authority = Authority(tmp_path / "pki")
        pair = authority.server("server", ["localhost"], ["127.0.0.1"])
        held, release = asyncio.Semaphore(0), asyncio.Event()

        async def status(_):
            held.release()
            await release.wait()
            return web.json_response({})

        async def lease(_):
            return web.json_response({"renewed": True})

        application = web.Application()
        application.add_routes([web.get("/status", status), web.get("/lease", lease)])
        runner = web.AppRunner(application)
        await runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
        context.load_cert_chain(pair.certificate, pair.key)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        _, port = runner.addresses[0]
        try:
            async with Api(kubeconfig(tmp_path, authority, port)) as api, asyncio.TaskGroup() as tasks:
                for _ in range(CONNECTIONS + 1):
                    tasks.create_task(api.request("GET", "/status"))
                for _ in range(CONNECTIONS):
                    await held.acquire()
                assert await api.request("GET", "/lease", heartbeat=True) == {"renewed": True}
                release.set()
        finally:
            release.set()
            await runner.cleanup()

    uvloop.run(test())
