package bounds

import "time"

// Limits of an ADS stream of the client, in bytes.
const (
	// EchoedVersion is the limit of a version that the client sends back to the server that chose it.
	// Those of servers are numbers, times or hashes.
	EchoedVersion = 4 << 10
	// Nonce is the limit of the nonce of a response, which every reply has to repeat.
	Nonce = 64 << 10
	// Request is the size from which requests are split where the protocol has a way (delta). Servers
	// commonly accept 4 MiB.
	Request = 2 << 20
	// ResponsePart is the size from which a response may be one of several parts. Servers split theirs at 2 MiB or more, and
	// resources as a whole.
	ResponsePart = 1 << 20
)

// Limits of the work on the responses of one management server.
const (
	// ResponseShare is the divisor of the time that is spent on it, as soon as ResponseBurst is used up: one
	// part in four. The start of a large mesh takes less than the burst, even on a machine that has far too much to do.
	ResponseShare = 4
	ResponseBurst = 10 * time.Second
	// ResponseRest is the longest rest after one response.
	ResponseRest = 30 * time.Second
)

// Limits of texts, in bytes.
const (
	// ErrorText is the limit of a text of a peer in an error of the client: an error of a
	// resource, a detail of a NACK, a name, a method, a body.
	ErrorText = 1 << 10
	// FaultText is the limit of the errors of one resource or document, in an error and in a NACK.
	FaultText = 8 << 10
	// RPCText is the limit of a message with which the client ends an RPC. It has several names, each of
	// ErrorText, and the errors of resources.
	RPCText = 8 << 10
	// NACKText is the limit of the reason of a NACK, with the errors of all its resources.
	NACKText = 32 << 10
	// KeptNACK is the limit of what a server keeps of the error of a client's last NACK.
	KeptNACK = 4 << 10
	// LogText is the limit of a text of a peer in a line of the log of a server.
	LogText = 2 << 10
	// LogName is the limit of a name in a line of the log of a server: of a node, a type, a version.
	LogName = 200
	// ClientLine is the limit of a line of the log of the client.
	ClientLine = 4 << 10
)

// Authority is the limit of an authority that an RPC is given in place of that of its channel, in bytes. gRPC
// repeats the authority in an error if the server's certificate is not for it. Names in DNS have 253 bytes at most.
const Authority = 1 << 10

// Rate is how often something may happen: Burst times at once, and PerSecond times a second in the long
// run.
type Rate struct {
	Burst, PerSecond float64
}

// Budgets of lines. The client's are for each severity: for each kind of lines, and for all together.
var (
	ClientLines = struct{ Kind, All Rate }{Kind: Rate{Burst: 20, PerSecond: 1}, All: Rate{Burst: 100, PerSecond: 10}}
	// HostLines are for the lines of serve and relay that clients of one host cause, and AllHostLines for those of all.
	HostLines    = Rate{Burst: 20, PerSecond: 1}
	AllHostLines = Rate{Burst: 200, PerSecond: 20}
	// OtherLines are for each message of the lines of serve and relay that others cause, such as errors of a folder.
	OtherLines = Rate{Burst: 500, PerSecond: 20}
)

// Limits of lists in resources that each RPC goes through, so that what an RPC costs does not grow with
// the size of a resource. A resource with a longer list is rejected.
const (
	// HTTPFilters is the limit of the HTTP filters of a chain. Each has an interceptor.
	HTTPFilters = 100
	// NestedFilters is the limit of the filters in the configuration of a composite filter, in all of its chains together.
	NestedFilters = 1000
	// Predicates is the limit of the predicates of a matcher tree.
	Predicates = 1000
	// CELBytes is the limit of a CEL expression, in bytes of its message, and CELCost that of an evaluation, in cel-go's units: an
	// operation is about 1, and so are 10 bytes of a text that is read.
	CELBytes = 16 << 10
	CELCost  = 10_000
	// HeaderEdits is the limit of a list of header edits, which is that of Envoy.
	HeaderEdits = 1000
	// TokenAudiences is the limit of the audiences for which a gcp_authn filter of a channel keeps tokens, of 16 KiB at most.
	TokenAudiences = 1000
	// Mirrors is the limit of the mirrors of a route. Each is an RPC of its own.
	Mirrors = 16
	// Conditions is the limit of the header and query matchers of a route or retry policy, of its hash
	// policies, and of the drop categories of a cluster.
	Conditions = 100
)

// Limits of look-ups of host names that run at the same time.
const (
	// Lookups is how many run for all clusters of the process.
	Lookups = 100
	// LookupsReserve is how many more may run, one for each cluster that has none.
	LookupsReserve = 100
)

// MinOutlierInterval is the shortest interval of outlier detection, which looks at every endpoint of
// its cluster then. gRFC A50 sets no bound; Envoy's is 1 ms.
const MinOutlierInterval = 100 * time.Millisecond

// What all clients of a control plane or a relay hold together, for 10,000 clients in 2 GiB. Streams and RequestBytes are
// defaults of flags. One peer has half of each at most, see mesh/internal/quota.
const (
	// Streams is the number of streams.
	Streams = 20_000
	// StreamsPerConnection is that of one connection. A proxy may have the streams of many clients on one.
	StreamsPerConnection = 1_000
	// Subscriptions is the number of names that streams subscribe to, each counted for each stream.
	// One takes 8 bytes as long as the resource exists, and about 100 otherwise.
	Subscriptions = 16_000_000
	// Names is the number of distinct names and constraints that are subscribed to. One takes about 600
	// bytes.
	Names = 1_000_000
	// NodeBytes is the size of the nodes in memory.
	NodeBytes = 256 << 20
	// Versions is the number of versions that delta clients say they have (initial_resource_versions) and
	// that have not been compared yet. One takes about 400 bytes.
	Versions = 500_000
	// ReplyBytes is the size of the responses that clients have not read yet.
	ReplyBytes = 512 << 20
	// WaitingRequestBytes is the size of the requests that have arrived and are not carried out yet. Requests below 64 KiB do not
	// count.
	WaitingRequestBytes = 16 * RequestBytes
	// RequestBytes is the size of one request, 16 MiB being about 200,000 names.
	RequestBytes = 16 << 20

	// Connections is the number of connections, if the process may open more descriptors.
	Connections = Streams
	// PageConnections is the number of connections to one address with pages for operators and Prometheus.
	PageConnections = 100
	// HeaderBytes is the size of the headers of one RPC. Tokens of clients are among them.
	HeaderBytes = 16 << 10

	// NodeSize is the size of one node on the wire.
	NodeSize = 512 << 10
	// NodeValue is what a value in the metadata of a node takes in memory, beside its bytes.
	NodeValue = 128
)

// Times of connections to a control plane or a relay.
const (
	// HandshakeTime is the longest time from the beginning of a connection to its first frame.
	HandshakeTime = 20 * time.Second
	// IdleTime is how long a connection without streams stays open.
	IdleTime = time.Minute
	// MessageTime is how long a message may take to arrive, from its first byte to its last one: RequestBytes at 2.2 Mbit/s.
	MessageTime = time.Minute
)

// LoadBytes is about what the load reports that a server or relay sums up take in memory, a cluster at least 2.5 KiB, a locality, metric or
// drop category at least 256 bytes.
const LoadBytes = 256 << 20

// LingeringConnections is how many connections of a channel stay open for a moment after their last use, if it did not have
// more in use lately.
const LingeringConnections = 100

// Connections of a channel that begin.
const (
	// Connecting is how many are made at a time.
	Connecting = 100
	// ConnectingSlice is how long they are waited for: within it as many more begin, whatever became of the others.
	ConnectingSlice = 100 * time.Millisecond
	// ManyEndpoints is how many a policy may connect to without a warning.
	ManyEndpoints = 10_000
)

// OutcomeKinds is how many combinations of channel, route and cluster have outcomes of RPCs of their own, while these
// are counted. One takes 3 KiB. RPCs of further ones are counted together.
const OutcomeKinds = 12_000
