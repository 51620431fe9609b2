// Package dynxds gives gRPC-Go clients xDS: import it for its side effect,
// dial a target of the scheme "xds", and point GRPC_XDS_BOOTSTRAP at a
// bootstrap file.
//
//	import _ "github.com/dynxds/dynxds"
//
//	conn, err := grpc.NewClient("xds:///echo.example.com", …)
//
// The control plane then configures routing, HTTP filters and load balancing of the channel.
// The scheme "dynxds" means the same, for processes that also link gRPC-Go's own xds package;
// if that has taken the scheme "xds", one error in gRPC's log says so (docs/tasks/beside-grpc-go.md has
// the ways to choose). Without a bootstrap, or if the control plane does not know the target,
// DNS resolves it, but not on channels with the credentials of google.golang.org/grpc/credentials/xds,
// which let the control plane choose TLS and send no plaintext to a cluster that asks for it.
//
// DialOptions and NewBuilder take a bootstrap in memory, such as that of KubernetesBootstrap. Channels and Dump show the state of
// channels and of the clients that they share, WithTrace what becomes of one RPC.
// RegisterCredentials, RegisterCallCredentials and SetConstraints add what only the program
// knows. All functions but RegisterCredentials and RegisterCallCredentials are safe for concurrent use.
//
// The package has no logic of its own: it registers the schemes (package resolver), and with
// them the load-balancing policies (balancer) and the HTTP filters (httpfilter/builtin).
package dynxds

import (
	"fmt"
	"os"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/kubepod"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

func init() { resolver.Register() }

// DialOptions returns the dial options that make a channel an xDS channel by gRPC's public API
// alone. They are for a program with a bootstrap in memory, or with a version of gRPC that
// lacks the hook on which the blank import relies (which then logs one error). Otherwise the
// blank import and DialOptions behave alike.
//
// Pass them after the program's own interceptors: routes and filters then see what these add
// to an RPC. Channels whose target has another scheme are not affected. Channels may share
// the result.
//
//	opts := []grpc.DialOption{grpc.WithTransportCredentials(…), grpc.WithChainUnaryInterceptor(…)}
//	opts = append(opts, dynxds.DialOptions(dynxds.WithBootstrap(json))...)
//	conn, err := grpc.NewClient("xds:///echo.example.com", opts...)
func DialOptions(opts ...Option) []grpc.DialOption {
	return append(grpcbridge.DialOptions(), grpc.WithResolvers(resolver.Builders(apply(opts).bootstrap)...))
}

// NewBuilder returns a resolver builder of the scheme "xds" with a bootstrap in memory, in the
// JSON format of gRFC A27. It is for grpc.WithResolvers, for a channel whose bootstrap is not
// that of the environment. Channels with equal bootstraps share their connections to
// management servers, whatever the source. The error lists everything that is wrong with the bootstrap, each
// with its key.
//
// It relies on the same hook as the blank import, see DialOptions. Do not wrap it in another Builder: the first RPCs of
// a channel would fail.
func NewBuilder(bootstrapJSON []byte) (grpcresolver.Builder, error) {
	return resolver.NewBuilder(bootstrapJSON)
}

// KubernetesBootstrap returns the bootstrap of a program in a pod of Kubernetes whose control plane is
// dynxds-kubernetes: for WithBootstrap or NewBuilder, in place of a file. The pod needs what
// deploy/kubernetes/example/client.yaml has: POD_NAME and POD_NAMESPACE in its environment, and a volume with a
// token and the authorities that certify the control plane. NODE_NAME, DYNXDS_SERVER, DYNXDS_TOKEN_FILE and
// DYNXDS_CA_FILE are optional. The error says what the pod lacks. "dynxds bootstrap --kubernetes" writes the same.
//
//	json, err := dynxds.KubernetesBootstrap()
//	…
//	conn, err := grpc.NewClient("xds:///backend.shop", append(opts, dynxds.DialOptions(dynxds.WithBootstrap(json))...)...)
func KubernetesBootstrap() ([]byte, error) {
	var pod kubepod.Pod
	if err := pod.Complete(os.Getenv); err != nil {
		return nil, fmt.Errorf("no bootstrap can be made in this pod: %w", err)
	}
	return pod.Bootstrap()
}

// SetConstraints sets the program's own dynamic parameter constraints (xRFC TP2) by type of
// resource: the variants of resources that its channels use. It is for what a program learns
// at run time, such as the shards that it was assigned:
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
// They replace those of the last call and hold for all channels of the process, also later
// ones. Open channels move to the new variants without failing an RPC. By key, constraints of
// a control plane's DPDS resource take precedence over them, and they over those of the
// bootstrap. The zero ByType removes them.
//
// WithBootstrap restricts the call to channels with that bootstrap, for which its keys take
// precedence. The error lists what is wrong with the bootstrap; it is nil without one.
func SetConstraints(constraints dynparam.ByType, opts ...Option) error {
	return resolver.SetConstraints(constraints, apply(opts).bootstrap)
}

// RegisterCredentials registers a type of channel credentials, which the channel_creds of a
// management server in a bootstrap may then name (gRFC A27). They are built for each such
// server. "insecure" and "tls" are built in, and importing
// xdsclient/bootstrap/googledefault adds "google_default". It is for init functions, before
// the first bootstrap is read, and panics if the type is already registered.
func RegisterCredentials(b bootstrap.CredentialsBuilder) { bootstrap.RegisterCredentials(b) }

// RegisterCallCredentials registers a type of call credentials, which the call_creds of a
// management server in a bootstrap may then name (gRFC A97). The requests to that server
// carry them. "jwt_token_file" is built in. Otherwise it is like RegisterCredentials.
func RegisterCallCredentials(b bootstrap.CallCredentialsBuilder) {
	bootstrap.RegisterCallCredentials(b)
}

// Mode is the source of a channel's configuration. Its text is that of logs.
type Mode = channels.Mode

// The modes of a channel.
const (
	// ModeUndecided: none yet. The control plane has not answered, or with an error that
	// does not permit DNS.
	ModeUndecided = channels.Undecided
	// ModeXDS: the control plane, which has had a Listener for the channel's target. A
	// channel stays in this mode.
	ModeXDS = channels.XDS
	// ModeDNS: DNS, until the control plane, if one is configured, has a configuration.
	ModeDNS = channels.DNS
)

// ChannelStatus is the state of one channel at one moment: a copy, which does not change.
//
//   - Target (string) is the channel's target as it was dialled.
//   - Mode (Mode) is the source of its configuration, Reason (string) the reason for it in
//     words, and Since (time.Time) the time when it entered the mode.
//   - DNS (*dnsconfig.Result) is the last look-up of the service config in ModeDNS
//     (gRFC A2), or nil. It must not be changed.
type ChannelStatus = channels.Status

// Channels returns the state of every channel of the schemes "xds" and "dynxds" that has been
// used and is not closed, in the order of first use, idle ones included.
func Channels() []ChannelStatus { return channels.All() }

// EndpointMetadata returns the metadata that the control plane has given an endpoint
// (LbEndpoint.metadata), or nil if there is none. It is for load-balancing policies that the program
// registers with gRPC and a Cluster names in a TypedStruct, to call for the endpoints of a
// balancer.ClientConnState; policies of gRPC's and of this module do not get metadata. Each call
// decodes it, so that a policy does better to call it in updates than in picks.
func EndpointMetadata(e grpcresolver.Endpoint) *corepb.Metadata { return xdsresource.MetadataOf(e) }

// Dump returns the state of each xDS client of the process: its servers, and its resources with
// their versions and errors. Channels with equal bootstraps share a client, which ends with
// the last of them. The caller owns the result. Package csds serves the same by gRPC.
func Dump() []*xdsclient.Dump {
	clients := xdsclient.Clients()
	dumps := make([]*xdsclient.Dump, len(clients))
	for i, c := range clients {
		dumps[i] = c.Dump()
	}
	return dumps
}

// An Option changes the behaviour of functions of the package.
type Option func(*options)

type options struct{ bootstrap []byte }

func apply(opts []Option) (o options) {
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// WithBootstrap sets a bootstrap in memory, in place of that of the environment. The errors of
// one fail the channel's RPCs, like those of a file; NewBuilder returns them at once. An empty
// one, nil or not, is faulty.
func WithBootstrap(json []byte) Option {
	if json == nil {
		json = []byte{} // as nil stands for the environment
	}
	return func(o *options) { o.bootstrap = json }
}
