package httpfilter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	udpapb "github.com/cncf/xds/go/udpa/type/v1"
	xdspb "github.com/cncf/xds/go/xds/type/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	rbacpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

type config struct{ Name, Value string }

// adding is the filter of the package's documentation.
func adding(types ...string) httpfilter.HeaderFilter[config] {
	return httpfilter.HeaderFilter[config]{
		Types: types,
		Parse: httpfilter.ParseStruct[config],
		Start: func(ctx context.Context, rpc *httpfilter.RPC, c config) (context.Context, error) {
			if c.Value == "" {
				return nil, errors.New("no value")
			}
			return metadata.AppendToOutgoingContext(ctx, c.Name, c.Value), nil
		},
	}
}

func fields(t *testing.T, m map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(m)
	xdstest.NoError(t, err)
	return s
}

type otherFilter struct{ httpfilter.HeaderFilter[int] }

// times makes a type for each run of a test, as there is one registry.
var times atomic.Int64

func TestTwoFiltersForOneTypePanicWithBothNames(t *testing.T) {
	t.Parallel()
	url := fmt.Sprint("type.googleapis.com/test.Twice", times.Add(1))
	httpfilter.Register(adding(url))
	defer func() {
		text, _ := recover().(string)
		for _, want := range []string{"HeaderFilter", "otherFilter", url} {
			if !strings.Contains(text, want) {
				t.Errorf("the panic %q does not mention %q", text, want)
			}
		}
		if httpfilter.Get(url) == nil {
			t.Error("the first one is not registered any more")
		}
	}()
	httpfilter.Register(otherFilter{httpfilter.HeaderFilter[int]{Types: []string{url}}})
}

// sent is the end of a chain: it keeps what arrives.
type sent struct {
	ctx context.Context
	rpc *httpfilter.RPC
}

func (s *sent) Send(ctx context.Context, rpc *httpfilter.RPC) (grpc.ClientStream, error) {
	s.ctx, s.rpc = ctx, rpc
	return httpfilter.EndedStream(ctx, nil, nil), nil
}

func TestHeaderFilter(t *testing.T) {
	t.Parallel()
	f := adding("type.googleapis.com/test.Adding")
	parse := func(name, value string) httpfilter.Config {
		c, err := f.ParseConfig(xdsmsg.Any(&xdspb.TypedStruct{TypeUrl: f.Types[0], Value: fields(t, map[string]any{"name": name, "value": value})}))
		xdstest.NoError(t, err)
		return c
	}
	for _, test := range []struct {
		name     string
		override httpfilter.Config
		want     []string
		fails    bool
	}{
		{"configuration", nil, []string{"top"}, false},
		{"override in its place", parse("k", "override"), []string{"override"}, false},
		{"error", parse("k", ""), nil, true},
	} {
		i, err := f.NewClientInstance(httpfilter.ClientInstanceInfo{}).ClientInterceptor(parse("k", "top"), test.override)
		xdstest.NoError(t, err)
		var end sent
		_, err = httpfilter.NewNext(&end, i).NewStream(t.Context(), new(httpfilter.RPC))
		if (err != nil) != test.fails {
			t.Errorf("%s: %v", test.name, err)
		}
		if test.fails {
			continue
		}
		if md, _ := metadata.FromOutgoingContext(end.ctx); !slices.Equal(md["k"], test.want) {
			t.Errorf("%s: %q, want %q", test.name, md["k"], test.want)
		}
	}
}

// TestTypedStruct: gRFC A39, "Top-Level Filter Configs".
func TestTypedStruct(t *testing.T) {
	t.Parallel()
	const url = "type.googleapis.com/test.T"
	good := fields(t, map[string]any{"name": "n", "value": "v"})
	for _, test := range []struct {
		name   string
		config proto.Message
		fault  string
	}{
		{"xds.type.v3", &xdspb.TypedStruct{TypeUrl: url, Value: good}, ""},
		{"udpa.type.v1", &udpapb.TypedStruct{TypeUrl: url, Value: good}, ""},
		{"without fields", &xdspb.TypedStruct{TypeUrl: url}, ""},
		{"with an unknown field", &xdspb.TypedStruct{TypeUrl: url, Value: fields(t, map[string]any{"nmae": "n"})}, "nmae"},
		{"with a field of another type", &xdspb.TypedStruct{TypeUrl: url, Value: fields(t, map[string]any{"name": 1})}, "name"},
		{"another message", new(faultpb.HTTPFault), "must be a TypedStruct"},
	} {
		c, err := httpfilter.ParseStruct[config](xdsmsg.Any(test.config))
		switch {
		case test.fault == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.fault != "" && (err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(test.fault))):
			t.Errorf("%s: %v, want %q", test.name, err, test.fault)
		case test.fault == "" && test.name != "without fields" && c != config{"n", "v"}:
			t.Errorf("%s: %+v", test.name, c)
		}
	}
	if _, err := httpfilter.ParseStruct[config](&anypb.Any{TypeUrl: "type.googleapis.com/xds.type.v3.TypedStruct", Value: []byte{0xff}}); err == nil {
		t.Error("bytes that are no TypedStruct are accepted")
	}
}

// However much is wrong with a TypedStruct, the error stays readable.
func TestManyFaultsOfATypedStruct(t *testing.T) {
	t.Parallel()
	const url = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault"
	many := make(map[string]any)
	for i := range 1000 {
		many[fmt.Sprint("unknown", i)] = true
	}
	err := httpfilter.UnmarshalConfig(xdsmsg.Any(&xdspb.TypedStruct{TypeUrl: url, Value: fields(t, many)}), new(faultpb.HTTPFault))
	if err == nil || len(err.Error()) > 10000 || !strings.Contains(err.Error(), "and 900 more") {
		t.Errorf("1000 unknown fields: %v", err)
	}
}

// The search for errors takes as long as reading the TypedStruct, and a little longer, though each value is read with all that is
// around it.
func TestFaultsOfALargeTypedStruct(t *testing.T) {
	t.Parallel()
	for rules, place := range map[int]string{10: ".rules[9].any: ", 3000: ""} {
		list := slices.Repeat([]any{map[string]any{"any": true}}, rules)
		list[rules-1] = map[string]any{"any": 1}
		for range 10 {
			list = []any{map[string]any{"and_rules": map[string]any{"rules": list}}}
		}
		value := map[string]any{"rules": map[string]any{"policies": map[string]any{"p": map[string]any{"permissions": list}}}}
		const url = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"
		err := httpfilter.UnmarshalConfig(xdsmsg.Any(&xdspb.TypedStruct{TypeUrl: url, Value: fields(t, value)}), new(rbacpb.RBAC))
		at, found := strings.CutSuffix(fmt.Sprint(err), "invalid value for bool field any: 1")
		if !found || !strings.HasSuffix(at, place) || (at == "") != (place == "") {
			t.Errorf("%d rules: %v", rules, err)
		}
	}
}

func TestACloneIsSeparate(t *testing.T) {
	t.Parallel()
	rpc := &httpfilter.RPC{Method: "/s/m", Options: []grpc.CallOption{grpc.WaitForReady(true)}}
	rpc.AddOptions(grpc.CallAuthority("a"))
	clone := rpc.Clone()
	clone.Method = "/t/n"
	clone.AddOptions(grpc.CallAuthority("b"))
	rpc.AddOptions(grpc.CallAuthority("c"))
	authority := func(r *httpfilter.RPC) string {
		return r.AddedOptions()[1].(grpc.AuthorityOverrideCallOption).Authority
	}
	if rpc.Method != "/s/m" || authority(rpc) != "c" || authority(clone) != "b" || len(rpc.Options) != 1 {
		t.Errorf("%+v and %+v", rpc, clone)
	}
}

func TestEndedStream(t *testing.T) {
	t.Parallel()
	s := httpfilter.EndedStream(t.Context(), nil, metadata.Pairs("k", "v"))
	if err := s.SendMsg(nil); err != io.EOF {
		t.Errorf("SendMsg: %v", err)
	}
	if err := s.RecvMsg(nil); err != io.EOF {
		t.Errorf("RecvMsg: %v", err)
	}
	if md, err := s.Header(); md != nil || err != nil {
		t.Errorf("Header: %v, %v", md, err)
	}
	if err := httpfilter.Exchange(s, nil, nil); err == nil || !strings.Contains(err.Error(), "no response message") {
		t.Errorf("Exchange: %v, want an error: no response message", err)
	}
	if s.Trailer().Get("k")[0] != "v" || s.Context() != t.Context() {
		t.Error("trailer or context is lost")
	}
}

// A HeaderFilter that its author has not completed does not end the program when the control plane
// configures it.
func TestIncompleteHeaderFilter(t *testing.T) {
	t.Parallel()
	var f httpfilter.HeaderFilter[string]
	const want = "the HeaderFilter has no Parse"
	if _, err := f.ParseConfig(new(anypb.Any)); err == nil || err.Error() != want {
		t.Errorf("ParseConfig: %v, want %s", err, want)
	}
	if _, err := f.ParseOverride(new(anypb.Any)); err == nil || err.Error() != want {
		t.Errorf("ParseOverride: %v, want %s", err, want)
	}
	if _, err := f.ClientInterceptor("config", nil); err == nil || err.Error() != "the HeaderFilter has no Start" {
		t.Errorf("ClientInterceptor: %v", err)
	}
}
