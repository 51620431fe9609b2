// A client of grpc-js, steered by a test of package interop. It makes the RPCs that
// argv[3], a JSON list of {"name", "method", "metadata"}, says to the target in argv[2],
// one after the other and over and over, and prints a line of JSON for each:
// {"call": name, "backend": "…"} as the response header says, or
// {"call": name, "code": 14, "error": "…"}. It ends when its standard input does. The
// bootstrap is in the environment. With argv[4] "csds" it serves the Client Status Discovery
// Service, and says by {"call": "csds", "backend": "host:port"} where.
import * as grpc from '@grpc/grpc-js';
import * as xds from '@grpc/grpc-js-xds';

xds.register();
const client = new grpc.Client(process.argv[2], grpc.credentials.createInsecure());
const calls = JSON.parse(process.argv[3]);
const bytes = (message) => message;

function call(i) {
  const { name, method, metadata } = calls[i];
  const header = new grpc.Metadata();
  for (const [key, value] of Object.entries(metadata ?? {})) header.set(key, value);
  let backend = '';
  const rpc = client.makeUnaryRequest(
    method, bytes, bytes, Buffer.alloc(0), header, { deadline: Date.now() + 10_000 },
    (err) => {
      console.log(JSON.stringify(err ? { call: name, code: err.code, error: err.details } : { call: name, backend }));
      setTimeout(call, 2, (i + 1) % calls.length);
    });
  rpc.on('metadata', (answer) => { backend = answer.get('backend-id').join(); });
}

if (process.argv[4] === 'csds') {
  const server = new grpc.Server();
  grpc.addAdminServicesToServer(server);
  server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (err, port) => {
    console.log(JSON.stringify(err ? { call: 'csds', code: 2, error: err.message } : { call: 'csds', backend: `127.0.0.1:${port}` }));
  });
}
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
call(0);
