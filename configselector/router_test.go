package configselector_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

func edits(name string, replace bool, values ...string) xdsresource.HeaderEdits {
	return xdsresource.HeaderEdits{{{Name: name, Replace: replace, Present: values, Absent: values}}}
}

// byPseudoHeader are a route for RPCs whose pseudo-header has a value, to cluster "c", and one for others, to "d".
func byPseudoHeader(name, value string) []*xdsresource.Route {
	route, other := toC(), toC()
	route.Match.Further = &matching.Conditions{Headers: []matching.Header{{Name: name, String: matching.NewString(matching.StringExact, value, false)}}}
	other.Action.(*xdsresource.Forward).Clusters[0].Name = "d"
	return []*xdsresource.Route{route, other}
}

// The channel's credentials decide the ":scheme" of an RPC.
func TestScheme(t *testing.T) {
	t.Parallel()
	for secure, want := range map[bool]string{true: "c", false: "d"} {
		w := newWorld(t, worldConfig{routes: byPseudoHeader(":scheme", "https"), secure: secure})
		xdstest.Equal(t, fmt.Sprint("cluster, secure ", secure), want, decision.FromContext(mustUnary(t, t.Context(), w.s, "/s/m")).Cluster)
	}
}

// An RPC is routed by the authority that grpc.CallAuthority gives it, also when it is routed again, up to a length.
func TestCallAuthority(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{routes: byPseudoHeader(":authority", "mine")})
	d := decision.FromContext(mustUnary(t, t.Context(), w.s, "/s/m", grpc.CallAuthority("mine")))
	again, err := w.s.Reselect(d)
	xdstest.NoError(t, err)
	xdstest.Equal(t, "clusters", []string{"c", "c"}, []string{d.Cluster, again})
	mustUnary(t, t.Context(), w.s, "/s/m", grpc.CallAuthority(strings.Repeat("a", bounds.Authority)))
	for name, opt := range map[string]grpc.CallOption{":authority=service": grpc.CallAuthority(""), "content-type=application/grpc": grpc.CallAuthority("mine")} {
		header, value, _ := strings.Cut(name, "=")
		w := newWorld(t, worldConfig{routes: byPseudoHeader(header, value)})
		xdstest.Equal(t, "cluster of an RPC with "+name, "c", decision.FromContext(mustUnary(t, t.Context(), w.s, "/s/m", opt)).Cluster)
	}
	long := strings.Repeat("a", bounds.Authority+1)
	if _, err := unary(t.Context(), w.s, "/s/m", grpc.CallAuthority(long)); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "grpc.CallAuthority") {
		t.Errorf("a long authority: %v", err)
	}
	mustUnary(t, t.Context(), newWorld(t, worldConfig{authority: long}).s, "/s/m") // The limit is not for the channel's own.
}

// The Decision of a rewritten RPC has what the RPC was routed by.
func TestARewrittenRPCIsRoutedAgainAsBefore(t *testing.T) {
	t.Parallel()
	route := toC()
	route.Match = matching.Route{Path: "/s", Further: &matching.Conditions{Headers: []matching.Header{{Name: "k", Kind: matching.HeaderPresent, Present: true}}}}
	route.Rewrite = &xdsresource.Rewrite{Prefix: "/elsewhere"}
	route.Headers = &xdsresource.HeaderMutations{Request: edits("k", true)}
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}})
	given := mustUnary(t, metadata.AppendToOutgoingContext(t.Context(), "k", "v"), w.s, "/s/m")
	d := decision.FromContext(given)
	if md, _ := metadata.FromOutgoingContext(given); len(md["k"]) != 0 || d.WireMethod() != "/elsewhere/m" {
		t.Errorf("gRPC is given %s with %v", d.WireMethod(), md)
	}
	if cluster, err := w.s.Reselect(d); err != nil || cluster != "c" {
		t.Errorf("Reselect: %q, %v", cluster, err)
	}
}

// TestAutoHostRewrite: gRFC A81, "xDS ConfigSelector Changes": the picker sets the authority, but
// grpc.CallAuthority takes precedence.
func TestAutoHostRewrite(t *testing.T) {
	t.Parallel()
	route := toC()
	route.Rewrite = &xdsresource.Rewrite{AutoHost: true}
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}})
	for want, opts := range map[string][]grpc.CallOption{"endpoint": nil, "": {grpc.CallAuthority("mine")}} {
		given := mustUnary(t, t.Context(), w.s, "/s/m", opts...)
		xdstest.Equal(t, "the authority that the picker sets",
			want, decision.FromContext(given).AuthorityFor("endpoint"))
	}
	// What a filter sets must not become a call option, which the picker could not replace.
	w = newWorld(t, worldConfig{routes: []*xdsresource.Route{route}, listener: chainOf(authorityFilter)})
	err := w.s.Unary(t.Context(), "/s/m", nil, nil, w.cc, func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
		for _, o := range opts {
			if o, ok := o.(grpc.AuthorityOverrideCallOption); ok {
				t.Errorf("gRPC is given %+v", o)
			}
		}
		return nil
	}, nil)
	xdstest.NoError(t, err)
}

// authorityFilter sets the authority of RPCs.
var authorityFilter = filterOf("authority", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
	rpc.Authority = "filtered"
	return next.NewStream(ctx, rpc)
})

// TestHashIsComputedWhenAsked: gRFC A42: from the metadata that the
// application gave, the same for every pick of the RPC, random without policy.
func TestHashIsComputedWhenAsked(t *testing.T) {
	t.Parallel()
	route := toC()
	route.HashPolicies = []xdsresource.HashPolicy{{Kind: xdsresource.HashHeader, Header: "user"}}
	hash := func(w *world, md ...string) uint64 {
		given := mustUnary(t, metadata.AppendToOutgoingContext(t.Context(), md...), w.s, "/s/m")
		d := decision.FromContext(given)
		first := d.Hash()
		if again := d.Hash(); again != first {
			t.Errorf("the hash was %d and is %d", first, again)
		}
		return first
	}
	by := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}})
	if a, b := hash(by, "user", "u1"), hash(by, "user", "u1"); a != b {
		t.Errorf("one user has hashes %d and %d", a, b)
	}
	if a, b := hash(by, "user", "u1"), hash(by, "user", "u2"); a == b {
		t.Errorf("two users have hash %d", a)
	}
	// Headers that the application gives by call options count, also behind a filter.
	bySubtype := toC()
	bySubtype.HashPolicies = []xdsresource.HashPolicy{{Kind: xdsresource.HashHeader, Header: "content-type"}}
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{bySubtype}, listener: chainOf(marking("f"))})
	subtypes := map[uint64]bool{}
	for _, subtype := range []string{"", "proto", "json", "json"} {
		given := mustUnary(t, t.Context(), w.s, "/s/m", grpc.CallContentSubtype(subtype))
		subtypes[decision.FromContext(given).Hash()] = true
	}
	xdstest.Equal(t, "hashes of three content types", 3, len(subtypes))
	for name, w := range map[string]*world{"no header": by, "no policy": newWorld(t, worldConfig{})} {
		seen := map[uint64]bool{}
		for range 16 {
			seen[hash(w)] = true
		}
		if len(seen) < 8 {
			t.Errorf("%s: 16 RPCs have %d hashes", name, len(seen))
		}
	}
}

// The stream of a unary RPC has one response, and nothing before it.
func TestAFilterUsesTheStreamOfAUnaryRPC(t *testing.T) {
	t.Parallel()
	for _, test := range sentTwice {
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{test.route}, listener: chainOf(filterOf("f", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
			s, err := next.NewStream(ctx, rpc)
			xdstest.NoError(t, err)
			expect := func(when string, want bool) {
				header, err := s.Header()
				xdstest.NoError(t, err)
				_, ok := peer.FromContext(s.Context())
				xdstest.Equal(t, test.name+", "+when+": header, trailer, peer", []bool{want, want, want}, []bool{header != nil, s.Trailer() != nil, ok})
			}
			expect("before", false)
			xdstest.NoError(t, s.SendMsg(bytesOf("")))
			expect("before the response", false)
			xdstest.NoError(t, s.RecvMsg(bytesOf("")))
			expect("after the response", true)
			return nil, status.Error(codes.Aborted, "by the filter")
		}))})
		if r := w.makeRPC(testutils.Context(t), kinds[0], "/s/m", []string{"y"}); status.Code(r.err) != codes.Aborted || len(w.seen()) != 1 {
			t.Errorf("%s: %v after %d RPCs", test.name, r.err, len(w.seen()))
		}
	}
}

// A unary RPC is a stream of one message.
func TestAFilterUsesAUnaryStreamAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{listener: chainOf(filterOf("f", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
		s, err := next.NewStream(ctx, rpc)
		xdstest.NoError(t, err)
		xdstest.NoError(t, s.RecvMsg(bytesOf(""))) // The request is an empty one.
		xdstest.Equal(t, "errors of further messages", []error{io.EOF, io.EOF}, []error{s.SendMsg(bytesOf("")), s.RecvMsg(bytesOf(""))}, cmpopts.EquateErrors())
		return nil, status.Error(codes.Aborted, "by the filter")
	}))})
	if r := w.makeRPC(testutils.Context(t), kinds[0], "/s/m", []string{"y"}); status.Code(r.err) != codes.Aborted || len(w.seen()) != 1 {
		t.Errorf("%v after %d RPCs", r.err, len(w.seen()))
	}
}
