package load

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
)

// rpc makes one RPC and returns the backend that answered.
type rpc func(context.Context, testpb.TestServiceClient) (backend string, err error)

// kinds is the RPCs that a Load repeats.
var kinds = map[string]rpc{
	"unary":            unary,
	"client streaming": clientStreaming,
	"server streaming": serverStreaming,
	"bidirectional":    bidirectional,
}

// longLived is the kind of the streams of HoldStream.
const longLived = "long-lived bidirectional"

// messages is how many messages a short stream carries in each direction.
const messages = 3

const messageSize = 16

func unary(ctx context.Context, client testpb.TestServiceClient) (string, error) {
	var header metadata.MD
	reply, err := client.UnaryCall(ctx, &testpb.SimpleRequest{ResponseSize: messageSize}, grpc.Header(&header))
	if err != nil {
		return "", err
	}
	if n := len(reply.GetPayload().GetBody()); n != messageSize {
		return "", fmt.Errorf("response of %d bytes, want %d", n, messageSize)
	}
	return backendOf(header.Get)
}

func clientStreaming(ctx context.Context, client testpb.TestServiceClient) (string, error) {
	stream, err := client.StreamingInputCall(ctx)
	if err != nil {
		return "", err
	}
	for range messages {
		err := stream.Send(&testpb.StreamingInputCallRequest{Payload: payload()})
		if errors.Is(err, io.EOF) {
			break // CloseAndRecv has the status.
		}
		if err != nil {
			return "", err
		}
	}
	reply, err := stream.CloseAndRecv()
	if err != nil {
		return "", err
	}
	if n := reply.GetAggregatedPayloadSize(); n != messages*messageSize {
		return "", fmt.Errorf("%d bytes arrived, want %d", n, messages*messageSize)
	}
	return answeredBy(stream)
}

func serverStreaming(ctx context.Context, client testpb.TestServiceClient) (string, error) {
	request := &testpb.StreamingOutputCallRequest{}
	for range messages {
		request.ResponseParameters = append(request.ResponseParameters, &testpb.ResponseParameters{Size: messageSize})
	}
	stream, err := client.StreamingOutputCall(ctx, request)
	if err != nil {
		return "", err
	}
	for n := 0; ; n++ {
		_, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && n == messages:
			return answeredBy(stream)
		case errors.Is(err, io.EOF):
			return "", fmt.Errorf("%d messages came, want %d", n, messages)
		case err != nil:
			return "", err
		}
	}
}

func bidirectional(ctx context.Context, client testpb.TestServiceClient) (string, error) {
	stream, err := client.FullDuplexCall(ctx)
	if err != nil {
		return "", err
	}
	for range messages {
		if err := exchange(stream); err != nil {
			return "", err
		}
	}
	if err := finish(stream); err != nil {
		return "", err
	}
	return answeredBy(stream)
}

// exchange sends one message and receives one.
func exchange(stream testpb.TestService_FullDuplexCallClient) error {
	err := stream.Send(&testpb.StreamingOutputCallRequest{
		ResponseParameters: []*testpb.ResponseParameters{{Size: messageSize}},
	})
	if err != nil && !errors.Is(err, io.EOF) { // Recv has the status.
		return err
	}
	if _, err := stream.Recv(); err != nil {
		return fmt.Errorf("instead of a message: %w", err)
	}
	return nil
}

// finish ends the stream and waits for the server to end it too.
func finish(stream testpb.TestService_FullDuplexCallClient) error {
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("instead of the end of the stream: %v", err)
	}
	return nil
}

func answeredBy(stream grpc.ClientStream) (string, error) {
	header, err := stream.Header()
	if err != nil {
		return "", err
	}
	return backendOf(header.Get)
}

func payload() *testpb.Payload { return &testpb.Payload{Body: make([]byte, messageSize)} }
