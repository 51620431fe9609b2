package extproc

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	procpb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// direct is an end that notes the messages that it gets.
type direct struct {
	grpc.ClientStream
	sent, received any
}

func (d *direct) Send(context.Context, *httpfilter.RPC) (grpc.ClientStream, error) { return d, nil }
func (d *direct) Header() (metadata.MD, error)                                     { return metadata.MD{}, nil }
func (d *direct) Trailer() metadata.MD                                             { return nil }
func (d *direct) CloseSend() error                                                 { return nil }
func (d *direct) SendMsg(m any) error                                              { d.sent = m; return nil }
func (d *direct) RecvMsg(m any) error                                              { d.received = m; return nil }

// Without body modes, messages are neither serialized nor copied.
func TestBodiesPassAsTheyAre(t *testing.T) {
	t.Parallel()
	target := startProcessor(t, nil, mirror)
	d, rpc := new(direct), &httpfilter.RPC{Method: "/s/m"}
	s, err := httpfilter.NewNext(d, interceptorOf(t, target, headersMode)).NewStream(testutils.Context(t), rpc)
	xdstest.NoError(t, err)
	request, reply := new(wrapperspb.StringValue), new(wrapperspb.StringValue)
	xdstest.NoError(t, httpfilter.Exchange(s, request, reply))
	if d.sent != request || d.received != reply || len(rpc.AddedOptions()) > 0 {
		t.Error("the messages or the options are not those of the application")
	}
}

// after starts the RPC to a backend after a processor has been sent something. That does not wait for one that observes.
type after struct {
	backend
	begun <-chan struct{}
}

func (a after) Send(ctx context.Context, rpc *httpfilter.RPC) (grpc.ClientStream, error) {
	select {
	case <-a.begun:
		return a.backend.Send(ctx, rpc)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// gRFC A93, "deferred_close_timeout": the processor has that time after the RPC to read what it was sent, although the application
// cancels its context.
func TestDeferredClose(t *testing.T) {
	t.Parallel()
	for deferred, want := range map[string]error{"3600": io.EOF, "0 nanos: 1000000": context.Canceled} {
		begun, ended := make(chan struct{}, 1), make(chan error, 1)
		target := startProcessor(t, nil, func(s procpb.ExternalProcessor_ProcessServer) error {
			for {
				r, err := s.Recv()
				if r.GetRequestHeaders() != nil {
					begun <- struct{}{}
				}
				if err == io.EOF && want != io.EOF {
					<-s.Context().Done()
				}
				if err != nil {
					ended <- cmp.Or(s.Context().Err(), err)
					return nil
				}
			}
		})
		ctx, cancel := context.WithCancel(testutils.Context(t))
		i := interceptorOf(t, target, headersMode+`observability_mode: true deferred_close_timeout { seconds: `+deferred+` }`)
		xdstest.NoError(t, exchange(ctx, after{startBackend(t), begun}, i, bidi))
		cancel()
		if err := <-ended; err != want {
			t.Errorf("%s s: the stream ends with %v, not %v", deferred, err, want)
		}
	}
}

// The codec is gRPC's choice: a forced one wins, and one of either age may be found by its name.
func TestCodecs(t *testing.T) {
	t.Parallel()
	for want, options := range map[string][]grpc.CallOption{
		"":      nil,
		"text":  {grpc.ForceCodecV2(text{})},
		"other": {grpc.ForceCodecV2(text{}), grpc.CallContentSubtype("other")},
		"old":   {grpc.ForceCodec(oldText{})},
		"test":  {grpc.ForceCodecV2(text{}), grpc.ForceCodecV2(nil), grpc.CallContentSubtype("test")},
		"named": {grpc.CallContentSubtype("named")},
	} {
		c := grpcbridge.RawCodecOf(options)
		xdstest.Equal(t, "content-subtype", want, c.Name())
		if want == "" {
			continue
		}
		in, out := "m", ""
		b, err := c.Encode(&in)
		xdstest.NoError(t, err)
		xdstest.NoError(t, c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &out))
		xdstest.Equal(t, "message", in, out)
	}
	if _, err := grpcbridge.RawCodecOf(nil).Encode(&struct{}{}); err == nil {
		t.Error("something else is a message")
	}
	unknown := &httpfilter.RPC{Options: []grpc.CallOption{grpc.CallContentSubtype("unknown")}}
	_, err := interceptorOf(t, "a", `processing_mode { request_body_mode: GRPC }`).NewStream(t.Context(), unknown, httpfilter.NewNext(new(direct)))
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "no codec is registered") {
		t.Errorf("an RPC without a codec: %v", err)
	}
}

func init() {
	encoding.RegisterCodecV2(named{})
	encoding.RegisterCodec(oldNamed{})
}

type named struct{ text }

func (named) Name() string { return "test" }

type oldNamed struct{ oldText }

func (oldNamed) Name() string { return "named" }

// oldText is text as an older codec.
type oldText struct{}

func (oldText) Name() string { return "old" }

func (oldText) Marshal(m any) ([]byte, error) { return []byte(*m.(*string)), nil }

func (oldText) Unmarshal(data []byte, m any) error {
	*m.(*string) = string(data)
	return nil
}

// gRFC A93, "Interaction With Compression": messages of the processor are not compressed.
func TestCompressionIsOff(t *testing.T) {
	t.Parallel()
	target := startProcessor(t, nil, mirror)
	rpc := &httpfilter.RPC{Method: "/s/m", Options: []grpc.CallOption{grpc.UseCompressor("gzip")}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := httpfilter.NewNext(new(direct), interceptorOf(t, target, `processing_mode { request_body_mode: GRPC }`)).NewStream(ctx, rpc)
	xdstest.NoError(t, err)
	if !slices.Contains(rpc.AddedOptions(), grpc.UseCompressor(encoding.Identity)) {
		t.Errorf("options %v", rpc.AddedOptions())
	}
}

// recorder has what was recorded, with its labels.
type recorder struct {
	estats.UnimplementedMetricsRecorder
	mu  sync.Mutex
	got []string
}

func (r *recorder) RecordFloat64Histo(h *estats.Float64HistoHandle, seconds float64, labels ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seconds < 0 || seconds > 60 {
		labels = append(labels, "wrong time")
	}
	r.got = append(r.got, fmt.Sprint(h.Name, h.Labels, h.OptionalLabels, labels))
}

// A trace may look at the RPC that it is told of: no lock is held meanwhile.
func TestATraceMayLookAtTheRPC(t *testing.T) {
	t.Parallel()
	var s grpc.ClientStream
	seen := make(chan metadata.MD, 1)
	ctx := rpctrace.With(testutils.Context(t), &rpctrace.Trace{FilterDecided: func(rpctrace.Filter) { seen <- s.Trailer() }})
	i := interceptorOf(t, startProcessor(t, nil, mirror), `processing_mode { request_header_mode: SKIP }`)
	var err error
	s, err = httpfilter.NewNext(startBackend(t), i).NewStream(ctx, &httpfilter.RPC{Method: "/s/m", StreamDesc: bidi})
	xdstest.NoError(t, err)
	xdstest.NoError(t, s.CloseSend())
	go s.RecvMsg(new(wrapperspb.StringValue))
	select {
	case <-seen:
	case <-ctx.Done():
		t.Fatal("the trace waits for the stream, which waits for the trace")
	}
}

// gRFC A93, "Client-Side Metrics": the four of them, for each kind of event once.
func TestMetrics(t *testing.T) {
	t.Parallel()
	target := startProcessor(t, nil, mirror)
	b := startBackend(t)
	for _, fields := range []string{headersMode, bodiesMode, bodiesMode + `observability_mode: true`} {
		for _, d := range []*grpc.StreamDesc{nil, bidi} {
			r := new(recorder)
			i := interceptorFor(t, httpfilter.ClientInstanceInfo{Target: "xds:///t", Metrics: r}, target, fields, "")
			xdstest.NoError(t, exchange(testutils.Context(t), b, i, d))
			slices.Sort(r.got)
			const labels = "_duration[grpc.target] [grpc.lb.backend_service] [xds:///t c]"
			xdstest.Equal(t, "metrics", []string{
				"grpc.client_ext_proc.client_half_close" + labels, "grpc.client_ext_proc.client_headers" + labels,
				"grpc.client_ext_proc.server_headers" + labels, "grpc.client_ext_proc.server_trailers" + labels,
			}, r.got)
		}
	}
}

// BenchmarkRPC has what the filter adds to a unary RPC, for processors near and far.
func BenchmarkRPC(b *testing.B) {
	near, far := new(testutils.Link), xdstest.SlowLink(time.Millisecond, time.Millisecond)
	for _, bench := range []struct {
		name, fields string
		link         *testutils.Link
	}{
		{"without", "", nil},
		{"headers/loopback", `processing_mode { response_header_mode: SKIP }`, near},
		{"headers/1ms each way", `processing_mode { response_header_mode: SKIP }`, far},
		{"everything/loopback", bodiesMode, near},
		{"everything/1ms each way", bodiesMode, far},
		{"everything observed/loopback", bodiesMode + `observability_mode: true`, near},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var chain []httpfilter.Interceptor
			if bench.link != nil {
				chain = append(chain, interceptorOf(b, startProcessor(b, bench.link, mirror), bench.fields))
			}
			next := httpfilter.NewNext(new(direct), chain...)
			ctx := metadata.AppendToOutgoingContext(b.Context(), "k", "v")
			request, reply := wrapperspb.String("request"), new(wrapperspb.StringValue)
			b.ReportAllocs()
			for b.Loop() {
				s, err := next.NewStream(ctx, &httpfilter.RPC{Method: "/s/m"})
				if err == nil {
					err = s.SendMsg(request)
				}
				if err == nil {
					err = s.CloseSend()
				}
				if err == nil {
					err = s.RecvMsg(reply)
				}
				xdstest.NoError(b, err)
			}
		})
	}
}

// The deadline of the RPC is not a failure of the processor.
func TestDeadline(t *testing.T) {
	t.Parallel()
	target := startProcessor(t, nil, func(s procpb.ExternalProcessor_ProcessServer) error {
		<-s.Context().Done()
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := exchange(ctx, startBackend(t), interceptorOf(t, target, headersMode+`failure_mode_allow: true`), nil)
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the RPC ends with %v", err)
	}
}
