// A certified OpenID provider on a free port of this machine; prints its address. Whoever gives a name is signed in by it.
import { createServer } from "node:http";
import Provider from "oidc-provider";

const server = createServer();
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
// Another host than the explorer's 127.0.0.1: to a browser these are two sites, as they are where users meet them.
const issuer = `http://localhost:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "regard-public",
      // On this machine the port is not known before.
      application_type: "native",
      token_endpoint_auth_method: "none",
      redirect_uris: ["http://127.0.0.1/sign-in/back"],
      grant_types: ["authorization_code"],
      response_types: ["code"],
    },
    {
      client_id: "regard-secret",
      client_secret: "hush",
      application_type: "native",
      redirect_uris: ["http://127.0.0.1/sign-in/back"],
      grant_types: ["authorization_code"],
      response_types: ["code"],
    },
  ],
  // Every client: without PKCE nobody is signed in.
  pkce: { required: () => true },
  claims: { openid: ["sub"], profile: ["name"] },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, name: `${id[0].toUpperCase()}${id.slice(1)} of the tests` }),
  }),
  cookies: { keys: ["of the tests alone"] },
});

server.on("request", provider.callback());
console.log(issuer);
