// A client of grpc-js, steered by a test of package interop. It makes one RPC
// after the other to the target in argv[2], and prints a line of JSON for each:
// {"backend": "…"} as the response header says, or {"error": "…"}. It ends when
// its standard input does. The bootstrap is in the environment.
import * as grpc from '@grpc/grpc-js';
import * as xds from '@grpc/grpc-js-xds';

xds.register();
const client = new grpc.Client(process.argv[2], grpc.credentials.createInsecure());
const bytes = (message) => message;

function call() {
  let backend = '';
  const rpc = client.makeUnaryRequest(
    '/grpc.testing.TestService/EmptyCall', bytes, bytes, Buffer.alloc(0),
    new grpc.Metadata(), { deadline: Date.now() + 10_000 },
    (err) => {
      console.log(JSON.stringify(err ? { error: err.message } : { backend }));
      setTimeout(call, 5);
    });
  rpc.on('metadata', (header) => { backend = header.get('backend-id').join(); });
}

process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
call();
