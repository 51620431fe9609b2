// Package composite is the composite filter (gRFC A103): a tree of conditions chooses the filters that an RPC goes through.
//
// Its configuration is an envoy.extensions.common.matching.v3.ExtensionWithMatcher around a Composite. The tree is that of gRFC
// A106; programs that import httpfilter/composite/cel take CEL expressions in it.
package composite

import (
	"context"
	"runtime"
	"sync"
	"weak"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/filtertrace"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// The types of the filter's configurations.
const (
	typeURL         = "type.googleapis.com/envoy.extensions.common.matching.v3.ExtensionWithMatcher"
	overrideTypeURL = "type.googleapis.com/envoy.extensions.common.matching.v3.ExtensionWithMatcherPerRoute"
)

func init() { httpfilter.Register(filter{}) }

// filter has, while it parses a configuration, what parses those inside.
type filter struct{ parse httpfilter.NestedParser }

func (filter) TypeURLs() []string { return []string{typeURL, overrideTypeURL} }

func (filter) IsTerminal() bool { return false }

func (filter) RunsOnServers() {}

func (filter) Nesting(parse httpfilter.NestedParser) httpfilter.OverrideParser { return filter{parse} }

func (filter) NewClientInstance(info httpfilter.ClientInstanceInfo) httpfilter.ClientInstance {
	return &instance{info: info, nested: make(map[nestedKey]weak.Pointer[nested])}
}

// instance has the instances of the filters inside that interceptors still use.
type instance struct {
	info   httpfilter.ClientInstanceInfo
	mu     sync.Mutex
	nested map[nestedKey]weak.Pointer[nested]
}

// nestedKey identifies the instance of a filter inside: as in a chain, its state stays for as long as name and type do.
type nestedKey struct{ name, typeURL string }

// nested is an instance that chains refer to. It is closed when the last of them is gone.
type nested struct{ httpfilter.ClientInstance }

func (in *instance) of(entry httpfilter.Instance, filter httpfilter.ClientFilter) *nested {
	key := nestedKey{entry.Name, filter.TypeURLs()[0]}
	in.mu.Lock()
	defer in.mu.Unlock()
	for old, n := range in.nested {
		if n.Value() == nil {
			delete(in.nested, old)
		}
	}
	if n := in.nested[key].Value(); n != nil {
		return n
	}
	info := in.info
	info.Name = entry.Name
	n := &nested{filter.NewClientInstance(info)}
	if c, ok := n.ClientInstance.(interface{ Close() }); ok {
		runtime.AddCleanup(n, func(c interface{ Close() }) { go c.Close() }, c)
	}
	in.nested[key] = weak.Make(n)
	return n
}

func (in *instance) ClientInterceptor(c, override httpfilter.Config) (httpfilter.Interceptor, error) {
	if override != nil {
		c = override
	}
	conf := c.(*config)
	if conf.tree == nil {
		return nil, nil
	}
	i := &interceptor{config: conf, name: in.info.Name, chains: make([]chain, len(conf.actions))}
	for n, a := range conf.actions {
		i.chains[n] = in.chain(a.chain)
		i.chains[n].decision = a.String()
	}
	return i, nil
}

// chain is that of an action.
type chain struct {
	interceptors []httpfilter.Interceptor
	names        []string // of the interceptors
	instances    []*nested
	err          error // of its RPCs, if a filter cannot run
	decision     string
}

func (in *instance) chain(entries []httpfilter.Instance) (c chain) {
	for _, entry := range entries {
		filter, ok := entry.Filter.(httpfilter.ClientFilter)
		if !ok {
			c.err = status.Errorf(codes.Unavailable, "composite: filter %s runs on servers only", faults.Quote(entry.Name))
			return c
		}
		instance := in.of(entry, filter)
		impl, err := instance.ClientInterceptor(entry.Config, nil)
		if err != nil {
			c.err = status.Errorf(codes.Unavailable, "composite: filter %s cannot be configured: %v", faults.Quote(entry.Name), err)
			return c
		}
		if impl != nil {
			c.interceptors = append(c.interceptors, impl)
			c.names = append(c.names, entry.Name)
			c.instances = append(c.instances, instance)
		}
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
		filtertrace.Decided(ctx, i.name, "no action", err)
		return nil, err
	}
	c := &i.chains[a.index]
	if !a.share.Draw() {
		filtertrace.Decided(ctx, i.name, a.place, nil)
		return next.NewStream(ctx, rpc)
	}
	filtertrace.Decided(ctx, i.name, c.decision, c.err)
	if c.err == nil && len(c.interceptors) == 0 {
		return next.NewStream(ctx, rpc)
	}
	if c.err != nil {
		return nil, c.err
	}
	interceptors := c.interceptors
	if t := rpctrace.FromContext(ctx); t != nil && rpctrace.SeesFilters(t) {
		interceptors = filtertrace.Of(interceptors, c.names, t)
	}
	return next.Through(interceptors...).NewStream(ctx, rpc)
}
