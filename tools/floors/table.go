package main

// A room is a folder, or several that belong together, with its packages: what it is
// for, and what it may import.
//
// A package imports packages of its own room, of rooms on lower floors and of those that
// beside names, and nothing else of the module. What a room must never import besides, or the few it
// may, stands in never and only.
type room struct {
	floor   int
	folders []string // from the top of the module; with all that is below them, unless another room has it
	holds   string   // what lives there
	never   string   // what it must never do, in words
	imports []string // import paths, or prefixes that end in "/...", that it must never import
	beside  []string // folders of rooms on the same floor that it may import all the same
	only    []string // the folders of the module that it may import, if not all on lower floors
}

// rooms is the house from the ground up. The page docs/architecture.md shows it
// ("make floors" writes it there).
var rooms = []room{
	{floor: 0, folders: []string{"internal/protofield"},
		holds: "fields of a message on the wire, not decoded",
		never: "know a message", imports: []string{"google.golang.org/protobuf/proto", "github.com/envoyproxy/..."}},
	{floor: 0, folders: []string{"internal/pmap"},
		holds: "a persistent map; snapshots keep their clusters in it",
		never: "know what it holds", imports: anyProtocol},
	{floor: 0, folders: []string{"proto"},
		holds: "TP2's messages, twins of the discovery messages that carry them, and the Go generated from both (`make generate`)",
		never: "hold logic"},
	{floor: 0, folders: []string{"internal/headeredit", "internal/fraction", "internal/httpstatus"},
		holds: "what filters and routes read alike: header edits, percentages, HTTP statuses",
		never: "know filters or routes"},
	{floor: 0, folders: []string{"internal/matching"},
		holds: "finds the route of an RPC by path, query, headers and fraction, and the virtual host by authority",
		never: "know a proto or what becomes of the RPC", imports: []string{"google.golang.org/protobuf/...", "github.com/envoyproxy/..."}},
	{floor: 0, folders: []string{"internal/xdsname"},
		holds: "names of resources, `xdstp:` ones in canonical form, and the names of their types",
		never: "know of streams", imports: []string{"google.golang.org/grpc", "github.com/envoyproxy/..."}, beside: []string{"internal/faults"}},
	{floor: 0, folders: []string{"internal/typeurl"},
		holds: "the type URLs of xDS, for both ends",
		never: "import any other package", imports: anyProtocol, only: []string{}},
	{floor: 0, folders: []string{"internal/faults", "internal/document"},
		holds: "all that is wrong with a document or message, as one error: paths, bounded lists; YAML and JSON that people write, read with their lines and suggestions",
		never: "know what is read", imports: anyProtocol},
	{floor: 0, folders: []string{"internal/refpool"},
		holds: "values that are shared by key: made for the first holder, closed after the last",
		never: "know what it holds", imports: anyProtocol},
	{floor: 0, folders: []string{"internal/rpctrace"},
		holds: "the hooks that trace one RPC, in its context",
		never: "import any other package", imports: anyProtocol, only: []string{}},
	{floor: 0, folders: []string{"dnsconfig"},
		holds: "service config in DNS TXT records: parse, choose, look up",
		never: "import any other package of the module", imports: []string{"github.com/envoyproxy/..."}},
	{floor: 1, folders: []string{"internal/lookup"},
		holds: "the addresses of host names, by gRPC's `dns` resolver, once for the process",
		never: "know clusters", imports: []string{"github.com/envoyproxy/..."}},
	{floor: 1, folders: []string{"internal/peercert"},
		holds: "verifies a server's certificate: its chain, SPIFFE ID and SANs (gRFC A29, A87, A101)",
		never: "do a handshake", imports: []string{"google.golang.org/...", "github.com/envoyproxy/..."}},
	{floor: 1, folders: []string{"xdsclient/dynparam", "internal/dynwire"},
		holds: "dynamic parameters and constraints: build, read, match, choose, merge; from and to bytes",
		never: "know of streams", imports: streams},
	{floor: 1, folders: []string{"internal/meshpolicy"},
		holds: "MeshHTTPRoute policies: the model, read from documents with all faults, and merged",
		never: "know xDS", imports: anyProtocol},
	{floor: 1, folders: []string{"internal/load"},
		holds: "counts RPCs by cluster and locality for load reports",
		never: "know of streams", imports: streams},
	{floor: 1, folders: []string{"internal/channels"},
		holds: "the status of each xDS channel of the process: mode and reason",
		never: "know resources", imports: []string{"github.com/envoyproxy/..."}},
	{floor: 1, folders: []string{"internal/certfiles"},
		holds: "certificates, keys, roots and SPIFFE bundles from files that rotate: the provider `file_watcher`",
		never: "shake hands", imports: []string{"google.golang.org/grpc", "github.com/envoyproxy/..."}},
	{floor: 1, folders: []string{"xdsclient/bootstrap"},
		holds: "the bootstrap file: parsed and validated, with the constraints in it",
		never: "open connections", beside: []string{"xdsclient/dynparam", "internal/certfiles", "internal/peercert"}},
	{floor: 1, folders: []string{"xdsclient/internal/choice"},
		holds: "which variant of a resource a subscription takes, as a pure function over offers",
		never: "know of streams, caches or bytes", imports: anyProtocol, beside: []string{"xdsclient/dynparam"}},
	{floor: 2, folders: []string{"xdsclient"},
		holds: "servers, ADS and LRS streams, cache, watchers, timers",
		never: "know what a Listener is", imports: []string{"github.com/envoyproxy/go-control-plane/envoy/config/listener/...", "github.com/envoyproxy/go-control-plane/envoy/config/route/...", "github.com/envoyproxy/go-control-plane/envoy/config/cluster/..."}},
	{floor: 2, folders: []string{"httpfilter"},
		holds: "the public filter API and registry; one folder per built-in filter",
		never: "know resources"},
	{floor: 2, folders: []string{"controlplane"},
		holds: "an xDS server over an in-memory store of resources and their variants",
		never: "import the client, but for floors 0 and 1"},
	{floor: 2, folders: []string{"meshroute"},
		holds: "MeshHTTPRoute policies, translated to resources and their variants",
		never: "do I/O, import the client, but for floors 0 and 1", imports: []string{"os", "google.golang.org/grpc"}},
	{floor: 3, folders: []string{"internal/decision"},
		holds: "what one RPC was given; how a picker gets at it",
		never: "route anything", imports: []string{"github.com/envoyproxy/..."}},
	{floor: 3, folders: []string{"csds"},
		holds: "the Client Status Discovery Service over the dumps of the clients",
		never: "know gRPC channels"},
	{floor: 3, folders: []string{"relay"},
		holds: "a caching xDS proxy: a control plane on demand over the client",
		never: "decode a resource", imports: []string{"github.com/envoyproxy/go-control-plane/envoy/config/listener/...", "github.com/envoyproxy/go-control-plane/envoy/config/route/...", "github.com/envoyproxy/go-control-plane/envoy/config/cluster/...", "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/..."}},
	{floor: 3, folders: []string{"internal/xdsresource"},
		holds: "Listener, RouteConfiguration, Cluster, Endpoints, DynamicParameterConstraintsMap: decode, validate, compile",
		never: "open watches"},
	{floor: 4, folders: []string{"internal/grpcbridge"},
		holds: "the one place that touches what gRPC-Go keeps internal",
		never: "grow", imports: []string{"github.com/envoyproxy/..."}},
	{floor: 4, folders: []string{"dpdswrapper"},
		holds: "a Client over a Client that attaches constraints to watches; DPDS; one per bootstrap",
		never: "be visible to the floors above"},
	{floor: 5, folders: []string{"configselector"},
		holds: "routes → Decision; carries the RPC out: filters, then the router's rewrites, edits, mirrors and retries",
		never: "know resolver or balancer"},
	{floor: 5, folders: []string{"balancer"},
		holds: "cluster manager; and, from a cluster down: aggregates, drops and limits, outlier detection, priorities, localities, endpoints (its `internal/`)",
		never: "decode protos", imports: xdsResources},
	{floor: 6, folders: []string{"resolver"},
		holds: "the schemes; dependency graph; snapshot; fallback to DNS",
		never: "decode protos", imports: xdsResources},
	{floor: 7, folders: []string{""},
		holds: "the root: the blank import; what programs call, which other packages do",
		never: "hold logic"},
	{floor: 7, folders: []string{"internal/dnsserver", "internal/loopback", "internal/testca", "internal/xdsmsg"},
		holds: "for tests: a DNS server, addresses that outlive a server, a certificate authority, builders of messages",
		never: "import any other package of the module", only: []string{"internal/typeurl"}},
	{floor: 8, folders: []string{"testutils", "internal/xdstest"},
		holds: "for tests: a control plane that stops and restarts, test backends, a link with latency; for our own tests alone, a record of requests and fault switches",
		never: "import the client, but for `xdsclient/dynparam`",
		only:  []string{"controlplane", "proto", "xdsclient/dynparam", "internal/loopback", "internal/typeurl"}},
	{floor: 9, folders: []string{"e2e"},
		holds: "tests of the whole, a file for each feature",
		never: "be imported by anything"},
	{floor: 9, folders: []string{"examples"},
		holds: "packages that a user could have written, with their tests",
		never: "be imported by anything"},
	{floor: 9, folders: []string{"cmd"},
		holds: "the command: `cmd/dynxds` reads flags and exits, `internal/` under it does the work",
		never: "be imported by anything"},
}

// What several rooms must never import.
var (
	xdsResources = []string{"github.com/envoyproxy/go-control-plane/envoy/config/..."}
	streams      = []string{"google.golang.org/grpc", "github.com/envoyproxy/go-control-plane/envoy/service/discovery/..."}
	anyProtocol  = []string{"google.golang.org/grpc", "google.golang.org/protobuf/...", "github.com/envoyproxy/..."}
)
