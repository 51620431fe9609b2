// Package headermutation is the filter
// envoy.extensions.filters.http.header_mutation.v3: it edits the outgoing
// metadata of RPCs, and their response headers and trailers.
//
// The mutations of the top-level configuration come first, then those of the
// override. Mutations that gRPC cannot carry out are left out and logged:
// those of pseudo headers and of headers of the gRPC protocol, values with
// command operators, and query parameters and request trailers, which RPCs do
// not have.
package headermutation

import (
	"context"
	"fmt"

	mutationpb "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/httpfilter/internal/protofilter"
	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/headeredit"
)

var logger = boundlog.Component("dynxds")

func init() {
	httpfilter.Register(protofilter.New(parse[*filterpb.HeaderMutation], parse[*filterpb.HeaderMutationPerRoute],
		func(httpfilter.ClientInstanceInfo) httpfilter.ClientInstance { return instance{} }))
}

// config is what both configurations hold.
type config struct{ request, response, trailer edits }

// edits are applied one after the other.
type edits []func(metadata.MD)

func (e edits) Apply(md metadata.MD) {
	for _, edit := range e {
		edit(md)
	}
}

func parse[M interface{ GetMutations() *filterpb.Mutations }](m M, found *faults.Faults) httpfilter.Config {
	var c config
	pb := m.GetMutations()
	for _, list := range []struct {
		name string
		pbs  []*mutationpb.HeaderMutation
		side headeredit.Side
		to   *edits
	}{
		{"request_mutations", pb.GetRequestMutations(), headeredit.Request, &c.request},
		{"response_mutations", pb.GetResponseMutations(), headeredit.Response, &c.response},
		{"response_trailers_mutations", pb.GetResponseTrailersMutations(), headeredit.Response, &c.trailer},
	} {
		if n := len(list.pbs); n > bounds.HeaderEdits {
			found.Addf(nil, "mutations.%s has %d entries, more than the %d that this client takes, as each RPC goes through them", list.name, n, bounds.HeaderEdits)
			return nil
		}
		for i, pb := range list.pbs {
			edit, err := mutation(list.side, pb, found.RegexCost)
			if err != nil {
				logger.Infof("header mutation filter: mutations.%s[%d] is ignored: %v", list.name, i, err)
				continue
			}
			*list.to = append(*list.to, edit)
		}
	}
	if n := len(pb.GetQueryParameterMutations()) + len(pb.GetRequestTrailersMutations()); n > 0 {
		logger.Infof("header mutation filter: %d mutations of query parameters and request trailers are ignored", n)
	}
	return &c
}

func mutation(side headeredit.Side, pb *mutationpb.HeaderMutation, regexCost *int) (func(metadata.MD), error) {
	if match := pb.GetRemoveOnMatch(); match != nil {
		return removeOnMatch(side, match.GetKeyMatcher(), regexCost)
	}
	edit, err := headeredit.FromMutation(side, pb)
	return edit.Apply, err
}

// removeOnMatch removes all headers whose names match and that can be edited.
func removeOnMatch(side headeredit.Side, pb *matcherpb.StringMatcher, regexCost *int) (func(metadata.MD), error) {
	m, err := headeredit.NameMatcher(pb, regexCost)
	if err != nil {
		return nil, fmt.Errorf("key_matcher: %w", err)
	}
	return func(md metadata.MD) {
		for name := range md {
			if _, err := headeredit.Name(side, name); err == nil && m.Matches(name) {
				delete(md, name)
			}
		}
	}, nil
}

type instance struct{}

func (instance) ClientInterceptor(c, override httpfilter.Config) (httpfilter.Interceptor, error) {
	merged := *c.(*config)
	if override != nil {
		o := override.(*config)
		merged.request = append(merged.request[:len(merged.request):len(merged.request)], o.request...)
		merged.response = append(merged.response[:len(merged.response):len(merged.response)], o.response...)
		merged.trailer = append(merged.trailer[:len(merged.trailer):len(merged.trailer)], o.trailer...)
	}
	if len(merged.request)+len(merged.response)+len(merged.trailer) == 0 {
		return nil, nil
	}
	return &merged, nil
}

// NewStream implements httpfilter.Interceptor.
func (c *config) NewStream(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
	s, err := next.NewStream(headeredit.Outgoing(ctx, c.request), rpc)
	if err != nil || len(c.response)+len(c.trailer) == 0 {
		return s, err
	}
	return httpfilter.EditResponse(s, c.response.Apply, func(md metadata.MD, only bool) {
		if only {
			c.response.Apply(md) // They are the headers, too.
		}
		c.trailer.Apply(md)
	}), nil
}
