package extproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	procpb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// script is what a processor does with an RPC.
type script func(procpb.ExternalProcessor_ProcessServer) error

type fakeProcessor struct {
	procpb.UnimplementedExternalProcessorServer
	script script
}

func (p *fakeProcessor) Process(s procpb.ExternalProcessor_ProcessServer) error {
	return p.script(s)
}

var insecureCredentials = insecure.NewCredentials()

type plaintext string

func (plaintext) DialOptions() ([]grpc.DialOption, func(), error) {
	return []grpc.DialOption{grpc.WithTransportCredentials(insecureCredentials)}, func() {}, nil
}

func (p plaintext) Key() string { return string(p) }

func anyService(pb *corepb.GrpcService_GoogleGrpc) (httpfilter.Service, error) {
	return plaintext(pb.GetTargetUri()), nil
}

func interceptorOf(t testing.TB, target, fields string) httpfilter.Interceptor {
	t.Helper()
	return interceptorFor(t, httpfilter.ClientInstanceInfo{}, target, fields, "")
}

func interceptorFor(t testing.TB, info httpfilter.ClientInstanceInfo, target, fields, override string) httpfilter.Interceptor {
	t.Helper()
	pb := xdsmsg.With(new(filterpb.ExternalProcessor), `grpc_service { google_grpc { target_uri: "%s" } }`, target)
	pb = xdsmsg.With(pb, "%s", fields)
	c, err := newFilter(anyService).ParseConfig(xdsmsg.Any(pb))
	xdstest.NoError(t, err)
	o, err := newFilter(anyService).ParseOverride(xdsmsg.Any(xdsmsg.With(new(filterpb.ExtProcPerRoute), "%s", override)))
	xdstest.NoError(t, err)
	i, err := newFilter(nil).NewClientInstance(info).ClientInterceptor(c, o)
	xdstest.NoError(t, err)
	return i
}

// backend is a server that sends each message back.
type backend struct{ conn *grpc.ClientConn }

func startBackend(t testing.TB) backend {
	t.Helper()
	addr := xdstest.Serve(t, nil, grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		for {
			m := new(wrapperspb.StringValue)
			if err := s.RecvMsg(m); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			if err := s.SendMsg(m); err != nil {
				return err
			}
		}
	})))
	return backend{dial(t, addr)}
}

var bidi = &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

func (b backend) Send(ctx context.Context, rpc *httpfilter.RPC) (grpc.ClientStream, error) {
	opts := slices.Concat(rpc.Options, rpc.AddedOptions())
	if rpc.StreamDesc != nil {
		return b.conn.NewStream(ctx, rpc.StreamDesc, rpc.Method, opts...)
	}
	s, err := b.conn.NewStream(ctx, new(grpc.StreamDesc), rpc.Method, opts...)
	return &unary{ClientStream: s}, err
}

// unary is a unary RPC. As filters see it, RecvMsg makes the RPC, of the message that SendMsg was given before.
type unary struct {
	grpc.ClientStream
	sent bool
}

func (u *unary) SendMsg(m any) error {
	u.sent = true
	return u.ClientStream.SendMsg(m)
}

func (u *unary) RecvMsg(m any) error {
	if !u.sent {
		return errors.New("it is received from before it has the request")
	}
	return u.ClientStream.RecvMsg(m)
}

// exchange sends a message, receives until the RPC ends, and returns the error that it ends with.
func exchange(ctx context.Context, b httpfilter.End, i httpfilter.Interceptor, d *grpc.StreamDesc) error {
	s, err := httpfilter.NewNext(b, i).NewStream(ctx, &httpfilter.RPC{Method: "/s/m", Cluster: "c", StreamDesc: d})
	if err != nil {
		return err
	}
	if err = s.SendMsg(wrapperspb.String("a")); err == nil || err == io.EOF {
		err = s.CloseSend()
	}
	for received := 0; err == nil; received++ {
		m := new(wrapperspb.StringValue)
		err = s.RecvMsg(m)
		switch {
		case err == io.EOF && received == 1, err == nil && d == nil:
			return nil
		case err == nil && m.GetValue() != "a":
			return fmt.Errorf("received %v", m)
		}
	}
	return err
}

func answer(text string) *procpb.ProcessingResponse {
	return xdsmsg.With(new(procpb.ProcessingResponse), "%s", text)
}

const set = `set_headers { header { key: "k" raw_value: "new" } append_action: OVERWRITE_IF_EXISTS_OR_ADD } `

// mirror answers each event: headers with a header k: new, and bodies unchanged. The processor gives the bytes of its window back.
func mirror(s procpb.ExternalProcessor_ProcessServer) error {
	for {
		r, err := s.Recv()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		a, update := new(procpb.ProcessingResponse), new(procpb.ProcessingResponse_ServerWindowUpdate)
		switch {
		case r.GetRequestHeaders() != nil:
			a = answer(`request_headers { response { header_mutation { ` + set + ` } } }`)
		case r.GetResponseHeaders() != nil:
			a = answer(`response_headers { response { header_mutation { ` + set + ` remove_headers: "h" } } }`)
		case r.GetResponseTrailers() != nil:
			a = answer(`response_trailers { header_mutation { ` + set + ` remove_headers: "t" } }`)
		case r.GetRequestBody() != nil:
			b := r.GetRequestBody()
			update.WindowIncrementDownstreamToSidestream = int64(len(b.GetBody()))
			a = bodyAnswer(requests, &procpb.StreamedBodyResponse{
				Body: b.GetBody(), EndOfStream: b.GetEndOfStream(), EndOfStreamWithoutMessage: b.GetEndOfStreamWithoutMessage(),
			})
		case r.GetResponseBody() != nil:
			a = bodyAnswer(responses, &procpb.StreamedBodyResponse{Body: r.GetResponseBody().GetBody()})
			update.WindowIncrementUpstreamToSidestream = int64(len(r.GetResponseBody().GetBody()))
		}
		a.ServerWindowUpdate = update
		if err := s.Send(a); err != nil {
			return err
		}
	}
}

const (
	headersMode = `processing_mode { response_trailer_mode: SEND } `
	bodiesMode  = `processing_mode { response_trailer_mode: SEND request_body_mode: GRPC response_body_mode: GRPC } `
)

// startProcessor starts a processor, over a link if that is not nil, and returns its target.
func startProcessor(t testing.TB, link *testutils.Link, s script) (target string) {
	t.Helper()
	server := grpc.NewServer()
	procpb.RegisterExternalProcessorServer(server, &fakeProcessor{script: s})
	return xdstest.Target(xdstest.Serve(t, link, server))
}
