// Package dynxds gives gRPC-Go clients xDS: import it for its side effect,
// dial a target of the scheme "xds", and point GRPC_XDS_BOOTSTRAP at a
// bootstrap file.
//
//	import _ "github.com/dynxds/dynxds"
//
//	conn, err := grpc.NewClient("xds:///echo.example.com", …)
//
// RPCs on the channel are then routed, filtered and balanced as the control
// plane says. The scheme "dynxds" means the same, for processes that also
// link gRPC-Go's own xds package; if that has taken the scheme "xds", one error in
// gRPC's log says so (docs/bootstrap.md has the ways to choose). Where there is no bootstrap, or the control
// plane does not know the target, DNS resolves it, but not on channels that leave
// their security to the control plane (google.golang.org/grpc/credentials/xds).
// Those send nothing in plaintext to a cluster that asks for more.
//
// A program that gives the bootstrap in memory uses DialOptions or NewBuilder.
// Channels and Dump show what its channels and the clients under them do.
// RegisterCredentials, RegisterCallCredentials and SetConstraints add what only the
// program knows. All functions are safe for concurrent use.
//
// The package holds no logic. It registers the schemes (package resolver), which
// brings the load-balancing policies (balancer) and the HTTP filters
// (httpfilter/builtin) along.
package dynxds

import (
	"google.golang.org/grpc"
	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

func init() { resolver.Register() }

// DialOptions returns the dial options that make a channel an xDS channel by
// gRPC's public API alone. They are for a program that gives the bootstrap in
// memory, or whose version of gRPC no longer has the hook that the blank
// import relies on (it logs one error if so); with the hook, blank import and
// DialOptions give the same behaviour.
//
// Pass them after the program's own interceptors: routes and filters then see what these
// add to an RPC. Channels whose target has another scheme are left alone, and one result
// may serve any number of channels.
//
//	opts := []grpc.DialOption{grpc.WithTransportCredentials(…), grpc.WithChainUnaryInterceptor(…)}
//	opts = append(opts, dynxds.DialOptions(dynxds.WithBootstrap(json))...)
//	conn, err := grpc.NewClient("xds:///echo.example.com", opts...)
func DialOptions(opts ...Option) []grpc.DialOption {
	return append(grpcbridge.DialOptions(), grpc.WithResolvers(resolver.Builders(apply(opts).bootstrap)...))
}

// NewBuilder returns a resolver builder of the scheme "xds" with a bootstrap in memory,
// JSON of the form that GRPC_XDS_BOOTSTRAP points at (gRFC A27). It is for
// grpc.WithResolvers, for a channel whose bootstrap is not that of the environment.
// Channels with equal bootstraps share their connections to management servers, however
// they were given. The error lists all faults of the bootstrap, each with its key.
//
// It relies on the hook that the blank import does, see DialOptions.
func NewBuilder(bootstrapJSON []byte) (grpcresolver.Builder, error) {
	return resolver.NewBuilder(bootstrapJSON)
}

// SetConstraints sets the dynamic parameter constraints (xRFC TP2) that the program
// has of its own, by type of resource: which variants of the resources its channels
// are to use. It is for what a program finds out as it runs, as the shards that it
// was assigned:
//
//	shards, err := dynparam.New(dynparam.Require("shards", dynparam.InRanges(
//		dynparam.Range{Min: 4, Max: 6}, dynparam.Range{Min: 11, Max: 15})))
//	…
//	clusters, err := dynparam.NewByType(map[string]dynparam.Constraints{
//		"envoy.config.cluster.v3.Cluster": shards,
//	})
//	…
//	err = dynxds.SetConstraints(clusters)
//
// They replace those of the last call, hold for all channels of the process, now and
// later, and move the ones that are open to the new variants without failing an
// RPC. Constraints by key from a control plane's DPDS resource win over them, and
// they win over those of the bootstrap. The zero ByType takes them back.
//
// WithBootstrap restricts the call to channels with that bootstrap; where both have
// something to say of a key, the call with the bootstrap wins. The error lists the
// faults of the bootstrap; without one there is none.
func SetConstraints(constraints dynparam.ByType, opts ...Option) error {
	return resolver.SetConstraints(constraints, apply(opts).bootstrap)
}

// RegisterCredentials makes a type of channel credentials known to bootstraps: the
// channel_creds of a management server may then name it (gRFC A27). Credentials of that
// type are built for each server whose bootstrap names them. "insecure" and "tls" are
// known, and "google_default" if the program imports xdsclient/bootstrap/googledefault. It
// is meant for init functions, before the first bootstrap is read, and panics if the type
// is already registered.
func RegisterCredentials(b bootstrap.CredentialsBuilder) { bootstrap.RegisterCredentials(b) }

// RegisterCallCredentials makes a type of call credentials known to bootstraps: the
// call_creds of a management server may then name it (gRFC A97), and the requests to that
// server carry them. "jwt_token_file" is known. Otherwise it is like RegisterCredentials.
func RegisterCallCredentials(b bootstrap.CallCredentialsBuilder) {
	bootstrap.RegisterCallCredentials(b)
}

// Mode says where a channel's configuration comes from. Its text is what logs say.
type Mode = channels.Mode

// The modes of a channel.
const (
	// ModeUndecided: nowhere yet. The control plane has not answered, or what it
	// said is no reason to use DNS.
	ModeUndecided = channels.Undecided
	// ModeXDS: from the control plane, which accepted the channel's target once.
	// A channel stays in this mode.
	ModeXDS = channels.XDS
	// ModeDNS: from DNS. The control plane, if one is configured, goes on being
	// asked.
	ModeDNS = channels.DNS
)

// ChannelStatus is the state of one channel at one moment: a copy, which does not change.
//
//   - Target (string) is the channel's target as it was dialled.
//   - Mode (Mode) is where its configuration comes from, Reason (string) is why, in
//     words, and Since (time.Time) is when it entered the mode.
//   - DNS (*dnsconfig.Result) is the last look-up of the service config in ModeDNS
//     (gRFC A2), nil in other modes and if there was none. It must not be changed.
type ChannelStatus = channels.Status

// Channels returns the state of every channel of the schemes "xds" and "dynxds"
// that has been used and is not closed, in the order of first use. A channel that is
// idle keeps its state.
func Channels() []ChannelStatus { return channels.All() }

// Dump returns what each xDS client of the process holds at the moment: its servers, and
// its resources with their versions and errors. Channels with equal bootstraps share one
// client, and a client ends with the last of its channels. The copies are the caller's.
// Package csds serves the same by gRPC.
func Dump() []*xdsclient.Dump {
	clients := xdsclient.Clients()
	dumps := make([]*xdsclient.Dump, len(clients))
	for i, c := range clients {
		dumps[i] = c.Dump()
	}
	return dumps
}

// An Option changes what the functions of the package do.
type Option func(*options)

type options struct{ bootstrap []byte }

func apply(opts []Option) (o options) {
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// WithBootstrap gives the bootstrap in memory, in place of the one that the
// environment names. A faulty one fails the channel's RPCs with an error that
// lists its faults, as a faulty file does; NewBuilder returns that error at once.
func WithBootstrap(json []byte) Option {
	return func(o *options) { o.bootstrap = json }
}
