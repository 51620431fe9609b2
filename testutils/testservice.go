package testutils

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/retries"
)

// maxPayload bounds what a request can make the service allocate.
const maxPayload = 4 << 20

// testService is grpc.testing.TestService as gRPC's interop description has it, without two methods that
// our tests do not need.
type testService struct {
	testpb.UnimplementedTestServiceServer
	id string
}

func (*testService) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) {
	return &testpb.Empty{}, nil
}

func (s *testService) UnaryCall(_ context.Context, req *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	if err := echoStatus(req.GetResponseStatus()); err != nil {
		return nil, err
	}
	payload, err := newPayload(req.GetResponseSize())
	if err != nil {
		return nil, err
	}
	return &testpb.SimpleResponse{Payload: payload, Hostname: s.id, ServerId: s.id}, nil
}

func (s *testService) StreamingOutputCall(req *testpb.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	if err := echoStatus(req.GetResponseStatus()); err != nil {
		return err
	}
	return sendAll(stream.Context(), req.GetResponseParameters(), stream.Send)
}

func (s *testService) StreamingInputCall(stream grpc.ClientStreamingServer[testpb.StreamingInputCallRequest, testpb.StreamingInputCallResponse]) error {
	size := 0
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&testpb.StreamingInputCallResponse{AggregatedPayloadSize: int32(size)})
		}
		if err != nil {
			return err
		}
		size += len(req.GetPayload().GetBody())
	}
}

func (s *testService) FullDuplexCall(stream grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
	// The client may wait for the header before it sends.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := echoStatus(req.GetResponseStatus()); err != nil {
			return err
		}
		if err := sendAll(stream.Context(), req.GetResponseParameters(), stream.Send); err != nil {
			return err
		}
	}
}

func sendAll(ctx context.Context, params []*testpb.ResponseParameters, send func(*testpb.StreamingOutputCallResponse) error) error {
	for _, p := range params {
		if err := retries.Wait(ctx, time.Duration(p.GetIntervalUs())*time.Microsecond); err != nil {
			return err
		}
		payload, err := newPayload(p.GetSize())
		if err != nil {
			return err
		}
		if err := send(&testpb.StreamingOutputCallResponse{Payload: payload}); err != nil {
			return err
		}
	}
	return nil
}

// echoStatus returns the error that the request asks for, nil for OK.
func echoStatus(want *testpb.EchoStatus) error {
	return status.Error(codes.Code(want.GetCode()), want.GetMessage())
}

func newPayload(size int32) (*testpb.Payload, error) {
	if size < 0 || size > maxPayload {
		return nil, status.Errorf(codes.InvalidArgument, "response size %d is not within 0 to %d", size, maxPayload)
	}
	return &testpb.Payload{Body: bytes.Repeat([]byte{0}, int(size))}, nil
}
