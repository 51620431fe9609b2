// Package gcpauthn is the filter envoy.extensions.filters.http.gcp_authn.v3 (gRFC A83): an RPC to a
// cluster whose metadata has an Audience under the filter's instance name carries an identity token of
// the process's GCP service account for that audience, as call credentials do.
//
// The cluster is the one that the RPC was picked for in the end, so that no other cluster sees its
// token. The package does not check tokens, and reads of them only when they expire.
package gcpauthn

import (
	"context"
	"errors"
	"fmt"
	"strings"

	gcppb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/gcp_authn/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/httpfilter/internal/protofilter"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
)

// audienceTypeURL is the type of the filter's entries in the metadata of clusters.
const audienceTypeURL = "type.googleapis.com/envoy.extensions.filters.http.gcp_authn.v3.Audience"

func init() { httpfilter.Register(newFilter()) }

type filter struct{ protofilter.Filter }

// newFilter returns the filter. Overrides have no effect.
func newFilter() filter { return filter{protofilter.New(parse, parse, newInstance)} }

// cacheSize is the configuration: how many audiences an instance has tokens for.
type cacheSize int

const defaultCacheSize cacheSize = 10

// audience is the metadata of a cluster.
type audience string

func parse(pb *gcppb.GcpAuthnFilterConfig, found *faults.Faults) httpfilter.Config {
	size := pb.GetCacheConfig().GetCacheSize()
	switch {
	case size == nil:
		return defaultCacheSize
	case size.GetValue() == 0:
		found.Addf(faults.Field("cache_config").Field("cache_size"), "must be above 0")
	}
	return cacheSize(min(size.GetValue(), bounds.TokenAudiences))
}

func (filter) MetadataTypeURLs() []string { return []string{audienceTypeURL} }

func (filter) ParseMetadata(a *anypb.Any) (any, error) {
	pb := new(gcppb.Audience)
	if err := a.UnmarshalTo(pb); err != nil {
		return nil, fmt.Errorf("cannot be read as %s: %w", a.MessageName(), err)
	}
	if pb.GetUrl() == "" {
		return nil, errors.New("url: must not be empty")
	}
	return audience(pb.GetUrl()), nil
}

func newInstance(info httpfilter.ClientInstanceInfo) httpfilter.ClientInstance {
	ctx, cancel := context.WithCancel(context.Background())
	return &instance{name: info.Name, tokens: newCache(ctx, ask), close: cancel}
}

// instance has the tokens of one filter of a channel.
type instance struct {
	name   string
	tokens *cache
	close  context.CancelFunc
}

// ClientInterceptor implements httpfilter.ClientInstance. The size of the cache holds at once, also for RPCs under the
// previous configuration.
func (in *instance) ClientInterceptor(c, _ httpfilter.Config) (httpfilter.Interceptor, error) {
	in.tokens.resize(int(c.(cacheSize)))
	return newInterceptor(in.name, in.tokens), nil
}

// Close ends requests for tokens.
func (in *instance) Close() { in.close() }

// interceptor is also the credentials of its RPCs, as option says.
type interceptor struct {
	name   string
	tokens *cache
	option grpc.CallOption
}

func newInterceptor(name string, tokens *cache) *interceptor {
	i := &interceptor{name: name, tokens: tokens}
	i.option = grpc.PerRPCCredentials(i)
	return i
}

// NewStream implements httpfilter.Interceptor.
func (i *interceptor) NewStream(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
	option := i.option
	// gRPC has room for one in an RPC's options.
	for _, opts := range [][]grpc.CallOption{rpc.Options, rpc.AddedOptions()} {
		for _, opt := range opts {
			if other, ok := opt.(grpc.PerRPCCredsCallOption); ok && other.Creds != nil {
				option = grpc.PerRPCCredentials(both{other.Creds, i})
			}
		}
	}
	rpc.AddOptions(option)
	return next.NewStream(ctx, rpc)
}

// RequireTransportSecurity is false, as RPCs to clusters without an audience do not need it. GetRequestMetadata does, for the
// others.
func (*interceptor) RequireTransportSecurity() bool { return false }

// GetRequestMetadata returns the token for the cluster that was picked, if that has an audience. gRPC calls it when it has a
// connection for the RPC.
func (i *interceptor) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	value, ok := httpfilter.PickedMetadata(ctx).Get(i.name)
	if !ok {
		return nil, nil
	}
	to, ok := value.(audience)
	if !ok {
		return nil, status.Errorf(codes.Unavailable,
			"GCP authentication filter %s: the metadata of the RPC's cluster has no envoy.extensions.filters.http.gcp_authn.v3.Audience under that name, but something else",
			bounds.Quote(i.name))
	}
	ri, _ := credentials.RequestInfoFromContext(ctx)
	if err := credentials.CheckSecurityLevel(ri.AuthInfo, credentials.PrivacyAndIntegrity); err != nil {
		return nil, status.Errorf(codes.Unauthenticated,
			"GCP authentication filter %s: a token for %s is not sent over an insecure connection: %v", bounds.Quote(i.name), bounds.Quote(string(to)), err)
	}
	return i.tokens.get(ctx, string(to))
}

// both are credentials of the application or of another filter, and those of this filter.
type both struct {
	credentials.PerRPCCredentials
	own *interceptor
}

func (b both) GetRequestMetadata(ctx context.Context, uri ...string) (map[string]string, error) {
	theirs, err := b.PerRPCCredentials.GetRequestMetadata(ctx, uri...)
	if err != nil {
		return nil, err
	}
	own, err := b.own.GetRequestMetadata(ctx, uri...)
	switch {
	case err != nil:
		return nil, err
	case len(own) == 0:
		return theirs, nil
	}
	all := make(map[string]string, len(theirs)+len(own))
	for _, headers := range []map[string]string{theirs, own} {
		for k, v := range headers {
			all[strings.ToLower(k)] = v // as gRPC has them
		}
	}
	return all, nil
}
