package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/access"
	"github.com/dynxds/dynxds/mesh/internal/quota"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

const (
	// DefaultLinger is the default of Options.Linger.
	DefaultLinger = time.Minute
	// DefaultAwayDelay is the default of Options.AwayDelay.
	DefaultAwayDelay = 5 * time.Second
	// DefaultMaxGroups is the default of Options.MaxGroups.
	DefaultMaxGroups = 10_000
	// defaultMaxGroupSubscriptions is the default of Options.MaxGroupSubscriptions: what package
	// controlplane allows on a stream.
	defaultMaxGroupSubscriptions = controlplane.DefaultMaxSubscriptions
	// maxLingering bounds the resources without a subscriber, of all groups: a client may subscribe to one name after the other.
	maxLingering = 100_000
	// maxTypes bounds the types of resources on a stream upstream: clients may invent them.
	maxTypes = 128
)

// Options configure a Relay. Bootstrap is needed; the zero value of all else is the default.
type Options struct {
	// Bootstrap has the management servers, with their features and credentials, and the node of
	// the relay. With its resource_cache, a relay that starts while they are away serves what it had,
	// but for single clients.
	Bootstrap *bootstrap.Config
	// OneGroup has all clients be the node of the bootstrap upstream, on one stream, whatever their user agents and features, of
	// which only those that all gRPC clients have are announced: for agents that serve one stream in a pod, as Istio's.
	// By default clients whose nodes differ in more than the id are apart, as are clients that understand different things.
	OneGroup bool
	// Access decides which node a client may be and what it may subscribe to, and of which clusters it may report the
	// load, in place of Server.Access and Loads.Access. The default is everything, as any node.
	Access controlplane.Access
	// Linger is how long a resource stays subscribed to upstream after its last subscriber has
	// left, and the cache of a group after its last client. The default is [DefaultLinger];
	// negative: not at all. What must not be cached never lingers.
	Linger time.Duration
	// AwayDelay is how long the relay waits for management servers that are unreachable before it sends
	// UNAVAILABLE for what it does not have. A short absence, as for a restart, is then no error for
	// clients. It should be less than the 15 s after which these take a resource not to exist. The
	// default is [DefaultAwayDelay]; negative: not at all.
	AwayDelay time.Duration
	// MaxGroups bounds how many streams there may be upstream: one for each group of clients, and
	// one for each client that subscribes to what is not shared. Groups that linger end first;
	// clients beyond that are refused, with RESOURCE_EXHAUSTED, until others have left. The groups that a peer began, which
	// is the clients at one address with one certificate, have at most as many as are left for all others. The default is [DefaultMaxGroups].
	MaxGroups int
	// MaxGroupSubscriptions bounds how many names and constraints the clients of a group subscribe to
	// together, as they share a stream upstream: a control plane that allows fewer on a stream would
	// end it. A client that is the first to subscribe to something gets RESOURCE_EXHAUSTED in its place
	// (xRFC TP3) while it has more of the limit than is left for all others; what others subscribe to
	// already it gets. The default is 200,000, which package controlplane allows.
	MaxGroupSubscriptions int
	// Server are the options of the relay's side that faces clients: limits for each client, and
	// whether to wrap resources in SotW. The default of MaxSubscriptions is half of
	// MaxGroupSubscriptions. StoreFor and NodeConstraints are the relay's own. Unless
	// RemovalDelay is set, removals are passed on at once, as the control plane has
	// decided when.
	Server controlplane.Options
	// Loads configures the load reports that clients are asked for, which the relay sums up and
	// sends to the first management server of the cluster's authority, under its own node.
	Loads controlplane.LoadOptions
	// Client are options of the clients of the management servers.
	Client xdsclient.Options
	// Log gets a line when upstream becomes unreachable and reachable again. nil: nothing.
	Log *slog.Logger
}

// Relay is a caching xDS proxy. It is safe for concurrent use.
type Relay struct {
	opts   Options
	log    *slog.Logger
	server *controlplane.Server
	loads  *loads
	// servedAway is Stats.ServedAway.
	servedAway atomic.Uint64
	// stop ends the goroutine of loads.
	stop context.CancelFunc
	// running has the goroutines.
	running sync.WaitGroup

	// upstreams limits the clients of the management servers, with a share for each peer: an address or a certificate.
	upstreams *quota.Quota[string]
	// lingering limits the subscriptions that linger, with a share for each group.
	lingering *quota.Quota[*group]
	// idleNodes limits the size of the nodes of groups without clients, with a share for each peer: the nodes of clients are limited by server.
	idleNodes *quota.Quota[string]

	// away counts the subscriptions whose management servers are unreachable.
	away atomic.Int64
	// warned has a rate.Sometimes for each message of a warning.
	warned sync.Map

	mu     sync.Mutex
	closed bool
	groups map[string]*group
}

// New returns a relay. It connects to the management servers when clients subscribe. The caller
// registers it with a gRPC server, and closes it.
func New(opts Options) (*Relay, error) {
	if opts.Bootstrap == nil {
		return nil, errors.New("relay: it needs a bootstrap")
	}
	if opts.Bootstrap.Node.GetId() == "" {
		return nil, errors.New("relay: all clients go by the id of the relay, and node.id of its bootstrap is empty: set it")
	}
	for name, limit := range map[string]int{"MaxGroups": opts.MaxGroups, "MaxGroupSubscriptions": opts.MaxGroupSubscriptions} {
		if limit < 0 {
			return nil, fmt.Errorf("relay: %s is %d, expected a positive number", name, limit)
		}
	}
	// The client that reports loads also shows that the options of all are valid.
	reporter, err := xdsclient.New(uncached(opts.Bootstrap), opts.Client)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	opts.setDefaults()
	r := &Relay{
		opts: opts, log: opts.Log,
		groups:    make(map[string]*group),
		upstreams: quota.New[string]("streams to its control plane", int64(opts.MaxGroups)),
		lingering: quota.New[*group]("subscriptions that linger", maxLingering),
		idleNodes: quota.New[string]("bytes of nodes without clients", bounds.NodeBytes),
	}
	down := opts.Server
	down.StoreFor, down.NodeConstraints = r.storeFor, nil
	if !opts.Access.IsZero() {
		down.Access = opts.Access
	}
	r.server = controlplane.NewServer(controlplane.NewStore(), down)
	r.loads = newLoads(r, reporter)
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.running.Go(func() { r.loads.run(ctx) })
	return r, nil
}

// uncached is a bootstrap without a resource_cache.
func uncached(b *bootstrap.Config) *bootstrap.Config {
	without := *b
	without.ResourceCache.Directory = ""
	return &without
}

func (o *Options) setDefaults() {
	o.Linger = cmp.Or(o.Linger, DefaultLinger)
	o.AwayDelay = cmp.Or(o.AwayDelay, DefaultAwayDelay)
	o.MaxGroups = cmp.Or(o.MaxGroups, DefaultMaxGroups)
	o.MaxGroupSubscriptions = cmp.Or(o.MaxGroupSubscriptions, defaultMaxGroupSubscriptions)
	o.Server.MaxSubscriptions = cmp.Or(o.Server.MaxSubscriptions, (o.MaxGroupSubscriptions+1)/2)
	o.Server.RemovalDelay = cmp.Or(o.Server.RemovalDelay, -1)
	o.Server.NotFoundErrors = true
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
}

// Register adds the services that clients use to a gRPC server: those of controlplane.Server, and the
// Load Reporting Service.
func (r *Relay) Register(s grpc.ServiceRegistrar) {
	r.server.Register(s)
	r.loads.reports.Register(s)
}

// Clients returns the status of the clients' streams.
func (r *Relay) Clients() []controlplane.ClientStatus { return r.server.Clients() }

// Overview is controlplane.Server.Overview of the clients' streams: the parts that people watch, at little cost.
func (r *Relay) Overview() []controlplane.ClientStatus { return r.server.Overview() }

// Close ends the streams of all clients and to the management servers, and waits for the
// goroutines of the relay. It may be called again.
func (r *Relay) Close() {
	r.server.Close()
	r.loads.reports.Close()
	r.mu.Lock()
	r.closed = true
	groups := slices.Collect(maps.Values(r.groups))
	clear(r.groups)
	r.mu.Unlock()
	for _, g := range groups {
		g.close()
	}
	r.stop() // not before, so that running is never 0 while a group may begin a goroutine
	r.running.Wait()
}

// Stats are the numbers of a relay at one moment.
type Stats struct {
	// Groups is the number of groups of clients, and Upstreams that of streams to management
	// servers, those of single clients included.
	Groups, Upstreams int
	// Subscriptions is the number of subscriptions upstream, and Lingering how many of them have
	// no subscriber any more.
	Subscriptions, Lingering int
	// Refused is the number of subscriptions that clients have, and that the relay does not ask for, as a
	// limit is reached.
	Refused int
	// Cached is the number of resources that the relay has, members of collections included.
	Cached int
	// Unreachable is the number of groups whose management servers are unreachable, and
	// UnreachableSince when the first of them became so, zero if there are none.
	Unreachable      int
	UnreachableSince time.Time
	// ServedAway counts the streams of clients that began while management servers were unreachable, so that they were
	// served what the relay had.
	ServedAway uint64
}

// Stats returns the numbers of the relay.
func (r *Relay) Stats() Stats {
	r.mu.Lock()
	groups := slices.Collect(maps.Values(r.groups))
	s := Stats{Groups: len(groups), Upstreams: int(r.upstreams.Used()), Lingering: int(r.lingering.Used()), ServedAway: r.servedAway.Load()}
	r.mu.Unlock()
	for _, g := range groups {
		g.addTo(&s)
	}
	return s
}

// errClosed ends streams when the relay closes. Clients go to another one.
var errClosed = status.Error(codes.Unavailable, "the xDS relay is shutting down")

// storeFor is the controlplane's Options.StoreFor: the store of the client's group.
func (r *Relay) storeFor(ctx context.Context, node *corepb.Node) (*controlplane.Store, error) {
	shared := r.opts.nodeFor(node)
	key, err := proto.MarshalOptions{Deterministic: true}.Marshal(shared)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the node of the first request is invalid: %v", err)
	}
	from, _ := peer.FromContext(ctx)
	by := access.Peer(from)
	g, err := r.join(string(key), shared, by)
	for status.Code(err) == codes.ResourceExhausted && r.endIdlest() {
		g, err = r.join(string(key), shared, by)
	}
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, g.leave)
	if r.away.Load() > 0 {
		r.servedAway.Add(1)
	}
	return g.store, nil
}

// join adds a client of a peer to a group.
func (r *Relay) join(key string, node *corepb.Node, by string) (*group, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	g := r.groups[key]
	if g == nil {
		var err error
		if g, err = r.newGroup(key, node, by); err != nil {
			return nil, err
		}
		r.groups[key] = g
	}
	g.clients++
	if g.idle != nil {
		stopTimer(&g.idle)
		r.idleNodes.Give(g.by, g.nodeBytes)
	}
	return g, nil
}

// endIdlest ends the group that has been without clients for longest, so that those that linger do
// not keep others out. It reports whether there was one.
func (r *Relay) endIdlest() bool {
	var idlest *group
	r.mu.Lock()
	for _, g := range r.groups {
		if g.clients == 0 && (idlest == nil || g.idleSince.Before(idlest.idleSince)) {
			idlest = g
		}
	}
	r.mu.Unlock()
	if idlest != nil {
		idlest.end()
	}
	return idlest != nil
}

// warnEvery is the least time between two lines with one message that clients cause.
const warnEvery = time.Minute

// warn logs what a client causes.
func (r *Relay) warn(message string, args ...any) {
	sometimes, _ := r.warned.LoadOrStore(message, &rate.Sometimes{First: 1, Interval: warnEvery})
	sometimes.(*rate.Sometimes).Do(func() { r.log.Warn(message, args...) })
}
