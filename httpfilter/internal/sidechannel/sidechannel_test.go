package sidechannel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
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

// gRFC A102, "GrpcService Proto Validation" and "Header Representation". More is in httpfilter/builtin/testdata/configurations.txt.
func TestParse(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("v", maxLength+1)
	const header = `google_grpc { target_uri: "dns:///a" } timeout { nanos: 1 } initial_metadata { key: "%s" raw_value: "%s" } initial_metadata { key: "k" value: "" }`
	s, err := parse(xdsmsg.With(new(corepb.GrpcService), header, "k-bin", "AP8="), nil)
	xdstest.NoError(t, err)
	xdstest.Equal(t, "timeout", time.Nanosecond, s.timeout)
	xdstest.Equal(t, "metadata", metadata.MD{"k-bin": {"\x00\xff"}, "k": {""}}, s.metadata)
	for want, of := range map[string][2]string{
		"initial_metadata[0]: a header has a name of 16385 bytes, more than 16384":    {long, "v"},
		`initial_metadata[0]: header "k": the value has 16385 bytes, more than 16384`: {"k", long},
	} {
		if _, err := parse(xdsmsg.With(new(corepb.GrpcService), header, of[0], of[1]), nil); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
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
	connections.Each(func(key string, _ *grpc.ClientConn) {
		if key == "broken" {
			t.Error("a connection is kept that could not be made")
		}
	})
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
