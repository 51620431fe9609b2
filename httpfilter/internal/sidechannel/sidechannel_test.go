package sidechannel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	mutationpb "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// broken is a service whose credentials cannot be built.
type broken struct{}

func (broken) DialOptions() ([]grpc.DialOption, func(), error) {
	return nil, nil, errors.New("no token")
}
func (broken) Key() string { return "broken" }

func parse(pb *corepb.GrpcService, services httpfilter.Services) (*Service, error) {
	var found faults.Faults
	s := Parse(nil, pb, services, &found)
	return s, found.Err()
}

// gRFC A102, "GrpcService Proto Validation" and "Header Representation".
func TestParse(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("v", maxLength+1)
	const target = `google_grpc { target_uri: "dns:///a" } `
	header := func(fields string) string { return target + `initial_metadata { ` + fields + ` }` }
	for name, test := range map[string]struct{ text, err string }{
		"target alone":         {text: target},
		"everything":           {text: target + `timeout { nanos: 1 } initial_metadata { key: "k-bin" raw_value: "AP8=" } initial_metadata { key: "k" value: "" }`},
		"ignored fields":       {text: `google_grpc { target_uri: "dns:///a" stat_prefix: "s" channel_credentials { local_credentials {} } } retry_policy { num_retries { value: 3 } }`},
		"nothing":              {err: "google_grpc: must be set, as envoy_grpc is not supported"},
		"envoy_grpc":           {text: `envoy_grpc { cluster_name: "c" }`, err: "google_grpc: must be set, as envoy_grpc is not supported"},
		"no target":            {text: `google_grpc {}`, err: "google_grpc.target_uri: must not be empty"},
		"a timeout of 0":       {text: target + `timeout {}`, err: "timeout: must be a valid duration above 0"},
		"a negative timeout":   {text: target + `timeout { seconds: -1 }`, err: "timeout: must be"},
		"an invalid timeout":   {text: target + `timeout { seconds: 315576000001 }`, err: "timeout: must be"},
		"no name":              {text: header(`value: "v"`), err: `initial_metadata[0]: header "": a header needs a name`},
		"upper case":           {text: header(`key: "K"`), err: `initial_metadata[0]: header "K": the name is not in lower case`},
		"a pseudo header":      {text: header(`key: ":path"`), err: `initial_metadata[0]: header ":path": pseudo headers`},
		"host":                 {text: header(`key: "host"`), err: `initial_metadata[0]: header "host": pseudo headers`},
		"a header of gRPC":     {text: header(`key: "grpc-timeout"`), err: `initial_metadata[0]: header "grpc-timeout": headers of the gRPC`},
		"an invalid name":      {text: header(`key: "a b"`), err: `initial_metadata[0]: header "a b": gRPC does not allow a character in the name`},
		"a long name":          {text: header(`key: "` + long + `"`), err: "initial_metadata[0]: a header has a name of 16385 bytes, more than 16384"},
		"an invalid value":     {text: header(`key: "k" value: "\n"`), err: `initial_metadata[0]: header "k": gRPC does not allow a character in the value`},
		"an invalid raw value": {text: header(`key: "k" value: "v" raw_value: "\377"`), err: `initial_metadata[0]: header "k": gRPC does not allow`},
		"a long value":         {text: header(`key: "k" value: "` + long + `"`), err: `initial_metadata[0]: header "k": the value has 16385 bytes, more than 16384`},
		"a -bin value in raw":  {text: header(`key: "k-bin" raw_value: "?"`), err: `initial_metadata[0]: header "k-bin": the value of a -bin header must be in base64`},
	} {
		s, err := parse(xdsmsg.With(new(corepb.GrpcService), "%s", test.text), nil)
		switch {
		case test.err != "":
			if err == nil || !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("%s: error %v, want %s", name, err, test.err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case name == "everything":
			xdstest.Equal(t, "timeout", time.Nanosecond, s.timeout)
			xdstest.Equal(t, "metadata", metadata.MD{"k-bin": {"\x00\xff"}, "k": {""}}, s.metadata)
		}
	}
}

// What cannot be called safely is not called.
func TestServicesThatCannotBeCalled(t *testing.T) {
	t.Parallel()
	pb := xdsmsg.With(new(corepb.GrpcService), `google_grpc { target_uri: "dns:///a" }`)
	refusal := errors.New("target_uri: refused")
	_, err := parse(pb, func(*corepb.GrpcService_GoogleGrpc) (httpfilter.Service, error) { return nil, refusal })
	if err == nil || err.Error() != "google_grpc.target_uri: refused" {
		t.Errorf("a service that is not allowed: %v", err)
	}
	for want, services := range map[string]httpfilter.Services{
		"the configuration was read without a bootstrap, which says how to call its service": nil,
		"no token": func(*corepb.GrpcService_GoogleGrpc) (httpfilter.Service, error) { return broken{}, nil },
	} {
		s, err := parse(pb, services)
		xdstest.NoError(t, err)
		if _, err := s.Open(); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if connections.Has("broken") {
		t.Error("a connection is kept that could not be made")
	}
}

// gRFC A102, "Header Representation": HeaderMutationRules.
func TestRules(t *testing.T) {
	t.Parallel()
	const regexes = `allow_expression { regex: "x-.*" } disallow_expression { regex: "x-no" } `
	for _, test := range []struct {
		name, rules, header string
		allowed, fails      bool
	}{
		{name: "no rules", header: "k", allowed: true},
		{name: "allowed", rules: regexes, header: "x-yes", allowed: true},
		{name: "not allowed", rules: regexes, header: "y"},
		{name: "a part matches", rules: regexes, header: "y-x-yes"},
		{name: "disallowed", rules: regexes, header: "x-no"},
		{name: "only disallow_expression", rules: `disallow_expression { regex: "x-no" }`, header: "y", allowed: true},
		{name: "disallow_all", rules: regexes + `disallow_all { value: true }`, header: "x-yes"},
		{name: "disallow_is_error", rules: regexes + `disallow_is_error { value: true }`, header: "y", fails: true},
		{name: "disallow_all and disallow_is_error", rules: `disallow_all { value: true } disallow_is_error { value: true }`, header: "y", fails: true},
		{name: "ignored fields", rules: `disallow_system { value: true } allow_envoy {} allow_all_routing {}`, header: "x-envoy-a", allowed: true},
	} {
		var found faults.Faults
		r := ParseRules(nil, xdsmsg.With(new(mutationpb.HeaderMutationRules), "%s", test.rules), &found)
		xdstest.NoError(t, found.Err())
		for _, f := range []func() (int, error){
			func() (int, error) {
				// What changes nothing counts, too.
				edits, err := r.Edits([]*corepb.HeaderValueOption{{Header: &corepb.HeaderValue{Key: test.header}, AppendAction: corepb.HeaderValueOption_OVERWRITE_IF_EXISTS}}, nil)
				return len(edits), err
			},
			func() (int, error) {
				edits, err := r.Edits(nil, []string{test.header})
				return len(edits), err
			},
		} {
			n, err := f()
			if n == 1 != test.allowed || errors.Is(err, ErrDisallowed) != test.fails || err != nil && !test.fails {
				t.Errorf("%s: %d edits, %v", test.name, n, err)
			}
		}
	}
	for text, want := range map[string]string{
		`allow_expression { regex: "(" }`:    "allow_expression.regex: is not a valid regular expression",
		`disallow_expression { regex: "(" }`: "disallow_expression.regex: is not a valid regular expression",
		`disallow_expression {}`:             "disallow_expression.regex: must not be empty",
	} {
		var found faults.Faults
		ParseRules(nil, xdsmsg.With(new(mutationpb.HeaderMutationRules), "%s", text), &found)
		if err := found.Err(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
}

// Each RPC goes through the patterns.
func TestPatternsAreLimited(t *testing.T) {
	t.Parallel()
	var found faults.Faults
	list := xdsmsg.With(new(matcherpb.ListStringMatcher), "%s", strings.Repeat(`patterns { exact: "a" }`, bounds.HeaderEdits+1))
	ParseForward(nil, list, nil, &found)
	if err := found.Err(); err == nil || !strings.HasPrefix(err.Error(), "allowed_headers.patterns: has 1001 entries, more than the 1000") {
		t.Errorf("error %v", err)
	}
}

// circular is a service whose channel calls the service for each call, as with a filter that asks the service.
type circular struct {
	channel *Channel
	calls   int
}

func (c *circular) Key() string { return fmt.Sprintf("circular %p", c) }

func (c *circular) DialOptions() ([]grpc.DialOption, func(), error) {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
			c.calls++
			return c.channel.Invoke(ctx, method, request, reply)
		}),
	}, func() {}, nil
}

// Calls that cause one another do not end the program.
func TestCallsForCallsAreBounded(t *testing.T) {
	t.Parallel()
	c := new(circular)
	s := &Service{target: "dns:///a", service: c}
	var err error
	c.channel, err = s.Open()
	xdstest.NoError(t, err)
	err = c.channel.Invoke(t.Context(), "/s/m", nil, nil)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "the channel to dns:///a has a filter that calls it") {
		t.Errorf("the call ends with %v", err)
	}
	xdstest.Equal(t, "calls", maxDepth, c.calls)
}

// traced is a service whose calls end in the program, with the context that they have.
type traced struct{ seen context.Context }

func (s *traced) Key() string { return fmt.Sprintf("traced %p", s) }

func (s *traced) DialOptions() ([]grpc.DialOption, func(), error) {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
			s.seen = ctx
			return nil
		}),
	}, func() {}, nil
}

// gRFC A92, "Filter Behavior": the call has the trace context of the RPC. A102: it has the deadline and the metadata of the
// configuration; the RPC's metadata stays with the RPC.
func TestContextOfACall(t *testing.T) {
	t.Parallel()
	type spanKey struct{}
	service := new(traced)
	pb := xdsmsg.With(new(corepb.GrpcService), `google_grpc { target_uri: "dns:///a" } timeout { seconds: 60 } initial_metadata { key: "k" value: "v" }`)
	s, err := parse(pb, func(*corepb.GrpcService_GoogleGrpc) (httpfilter.Service, error) { return service, nil })
	xdstest.NoError(t, err)
	c, err := s.Open()
	xdstest.NoError(t, err)
	ctx := metadata.AppendToOutgoingContext(context.WithValue(t.Context(), spanKey{}, "span"), "authorization", "secret")
	for _, timeout := range []time.Duration{30 * time.Second, 90 * time.Second} {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		xdstest.NoError(t, c.Invoke(ctx, "/s/m", nil, nil))
		md, _ := metadata.FromOutgoingContext(service.seen)
		xdstest.Equal(t, "metadata", metadata.MD{"k": {"v"}}, md)
		xdstest.Equal(t, "span", "span", service.seen.Value(spanKey{}).(string))
		deadline, _ := service.seen.Deadline()
		if left := time.Until(deadline); left > min(timeout, time.Minute) {
			t.Errorf("an RPC with %v has a call with %v", timeout, left)
		}
	}
}
