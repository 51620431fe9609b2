package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/retries"
)

// Kind is a kind of RPC, and the method of grpc.testing.TestService that has it.
type Kind struct {
	// Name is how the kind is called; Method is the full method.
	Name, Method string
	// Do makes one RPC from beginning to end and returns its response headers.
	Do func(ctx context.Context, client testpb.TestServiceClient, opts ...grpc.CallOption) (metadata.MD, error)
}

// Kinds is the kinds of RPC that a Load repeats.
var Kinds = []Kind{
	{"unary", testpb.TestService_UnaryCall_FullMethodName, unary},
	{"client streaming", testpb.TestService_StreamingInputCall_FullMethodName, clientStreaming},
	{"server streaming", testpb.TestService_StreamingOutputCall_FullMethodName, serverStreaming},
	{"bidirectional", HeldMethod, bidirectional},
}

// HeldMethod is the full method of the streams of Hold and HoldStream.
const HeldMethod = testpb.TestService_FullDuplexCall_FullMethodName

// longLived is the kind of the streams of HoldStream.
const longLived = "long-lived bidirectional"

// messages is how many messages a short stream carries in each direction.
const messages = 3

const messageSize = 16

func unary(ctx context.Context, client testpb.TestServiceClient, opts ...grpc.CallOption) (metadata.MD, error) {
	var header metadata.MD
	reply, err := client.UnaryCall(ctx, &testpb.SimpleRequest{ResponseSize: messageSize}, append(opts, grpc.Header(&header))...)
	if err != nil {
		return nil, err
	}
	if n := len(reply.GetPayload().GetBody()); n != messageSize {
		return nil, fmt.Errorf("response of %d bytes, want %d", n, messageSize)
	}
	return header, nil
}

func clientStreaming(ctx context.Context, client testpb.TestServiceClient, opts ...grpc.CallOption) (metadata.MD, error) {
	stream, err := client.StreamingInputCall(ctx, opts...)
	if err != nil {
		return nil, err
	}
	for range messages {
		_ = stream.Send(&testpb.StreamingInputCallRequest{Payload: &testpb.Payload{Body: make([]byte, messageSize)}}) // CloseAndRecv has the status
	}
	reply, err := stream.CloseAndRecv()
	if err != nil {
		return nil, err
	}
	if n := reply.GetAggregatedPayloadSize(); n != messages*messageSize {
		return nil, fmt.Errorf("%d bytes arrived, want %d", n, messages*messageSize)
	}
	return stream.Header()
}

func serverStreaming(ctx context.Context, client testpb.TestServiceClient, opts ...grpc.CallOption) (metadata.MD, error) {
	sizes := slices.Repeat([]*testpb.ResponseParameters{{Size: messageSize}}, messages)
	stream, err := client.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{ResponseParameters: sizes}, opts...)
	n := -1
	for ; err == nil; n++ {
		_, err = stream.Recv()
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n != messages {
		return nil, fmt.Errorf("%d messages came, want %d", n, messages)
	}
	return stream.Header()
}

func bidirectional(ctx context.Context, client testpb.TestServiceClient, opts ...grpc.CallOption) (metadata.MD, error) {
	return Hold(ctx, client, messages, 0, opts...)
}

// Hold opens a bidirectional stream, exchanges so many messages with a pause after each, and ends it. It returns its response headers.
func Hold(ctx context.Context, client testpb.TestServiceClient, messages int, pause time.Duration, opts ...grpc.CallOption) (metadata.MD, error) {
	stream, err := client.FullDuplexCall(ctx, opts...)
	for n := 0; n < messages && err == nil; n++ {
		if err = exchange(stream); err == nil {
			err = retries.Wait(ctx, pause)
		}
	}
	if err == nil {
		err = finish(stream)
	}
	if err != nil {
		return nil, err
	}
	return stream.Header()
}

// exchange sends one message and receives one.
func exchange(stream testpb.TestService_FullDuplexCallClient) error {
	// Recv has the status.
	_ = stream.Send(&testpb.StreamingOutputCallRequest{ResponseParameters: []*testpb.ResponseParameters{{Size: messageSize}}})
	if _, err := stream.Recv(); err != nil {
		return fmt.Errorf("instead of a message: %w", err)
	}
	return nil
}

// finish ends the stream and waits for the server to end it too.
func finish(stream testpb.TestService_FullDuplexCallClient) error {
	_ = stream.CloseSend() // Recv has the status
	switch _, err := stream.Recv(); {
	case err == nil:
		return errors.New("a message came instead of the end of the stream")
	case errors.Is(err, io.EOF):
		return nil
	default:
		return fmt.Errorf("instead of the end of the stream: %w", err)
	}
}
