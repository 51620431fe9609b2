// Package composite is the composite filter (gRFC A103): a tree of conditions chooses the filters that an RPC goes through.
//
// Its configuration is an envoy.extensions.common.matching.v3.ExtensionWithMatcher around a Composite. The tree is that of gRFC
// A106; programs that import httpfilter/composite/cel take CEL expressions in it.
package composite

import (
	"cmp"
	"context"

	matchingpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/httpfilter/internal/protofilter"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/filterchain"
	"github.com/dynxds/dynxds/internal/refpool"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

func init() { httpfilter.Register(newFilter(nil)) }

type filter struct{ protofilter.Filter }

// Nesting implements httpfilter.NestingFilter.
func (filter) Nesting(parse httpfilter.NestedParser) httpfilter.OverrideParser {
	return newFilter(parse)
}

// newFilter returns the filter with what parses the configurations inside another one.
func newFilter(parse httpfilter.NestedParser) filter {
	return filter{protofilter.New(
		func(pb *matchingpb.ExtensionWithMatcher, found *faults.Faults) httpfilter.Config {
			return parser{found, parse, new(config)}.parseConfig(pb)
		},
		func(pb *matchingpb.ExtensionWithMatcherPerRoute, found *faults.Faults) httpfilter.Config {
			return parser{found, parse, new(config)}.parseTree(pb.GetXdsMatcher())
		},
		func(info httpfilter.ClientInstanceInfo) httpfilter.ClientInstance { return &instance{info: info} },
	)}
}

// instance has the instances of the filters inside that interceptors still use.
type instance struct {
	info   httpfilter.ClientInstanceInfo
	nested refpool.Weak[nestedKey, filterchain.Instance]
}

// nestedKey identifies the instance of a filter inside: as in a chain, its state stays for as long as name and type do.
type nestedKey struct{ name, typeURL string }

func (in *instance) of(entry httpfilter.Instance, filter httpfilter.ClientFilter) *filterchain.Instance {
	return in.nested.Get(nestedKey{entry.Name, filterchain.TypeOf(filter)}, func() *filterchain.Instance {
		info := in.info
		info.Name = entry.Name
		return filterchain.NewInstance(filter, info)
	})
}

func (in *instance) ClientInterceptor(c, override httpfilter.Config) (httpfilter.Interceptor, error) {
	conf := cmp.Or(override, c).(*config)
	if conf.tree == nil {
		return nil, nil
	}
	i := &interceptor{config: conf, name: in.info.Name, chains: make([]chain, len(conf.actions))}
	for n, a := range conf.actions {
		i.chains[n] = chain{in.chain(a.chain), a.String()}
	}
	return i, nil
}

// chain is that of an action.
type chain struct {
	filterchain.Chain
	decision string
}

func (in *instance) chain(entries []httpfilter.Instance) (c filterchain.Chain) {
	for _, entry := range entries {
		filter, ok := entry.Filter.(httpfilter.ClientFilter)
		if !ok {
			c.Err = status.Errorf(codes.Unavailable, "composite: filter %s runs on servers only", faults.Quote(entry.Name))
			return c
		}
		instance := in.of(entry, filter)
		interceptor, err := instance.ClientInterceptor(entry.Config, nil)
		if err != nil {
			c.Err = status.Errorf(codes.Unavailable, "composite: filter %s cannot be configured: %v", faults.Quote(entry.Name), err)
			return c
		}
		c.Add(instance, interceptor)
	}
	return c
}

type interceptor struct {
	*config
	name   string
	chains []chain // of the actions
}

// NewStream decides what becomes of an RPC (gRFC A103, "Filter Behavior").
func (i *interceptor) NewStream(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
	a, ok := i.tree.Match(ctx, rpc)
	if !ok {
		err := status.Error(codes.Unavailable, "composite: the matcher tree has no action for the RPC")
		filterchain.Decided(ctx, i.name, "no action", err)
		return nil, err
	}
	c := &i.chains[a.index]
	if !a.share.Draw() {
		filterchain.Decided(ctx, i.name, a.place, nil)
		return next.NewStream(ctx, rpc)
	}
	filterchain.Decided(ctx, i.name, c.decision, c.Err)
	switch {
	case c.Err != nil:
		return nil, c.Err
	case c.Passes():
		return next.NewStream(ctx, rpc)
	}
	return next.Through(c.Interceptors(rpctrace.FromContext(ctx))...).NewStream(ctx, rpc)
}
