package httpfilter

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// EndedStream returns a stream of an RPC that has ended without a response
// message and without response headers, as if the backend had answered so at
// once: with the status of err (nil: OK) and the trailer. A filter that only
// wants to fail an RPC returns the error instead.
func EndedStream(ctx context.Context, err error, trailer metadata.MD) grpc.ClientStream {
	if err == nil {
		err = io.EOF
	}
	return &endedStream{ctx: ctx, err: err, trailer: trailer}
}

type endedStream struct {
	ctx     context.Context
	err     error
	trailer metadata.MD
}

func (s *endedStream) Header() (metadata.MD, error) { return nil, nil }
func (s *endedStream) Trailer() metadata.MD         { return s.trailer }
func (s *endedStream) CloseSend() error             { return nil }
func (s *endedStream) Context() context.Context     { return s.ctx }
func (s *endedStream) SendMsg(any) error            { return io.EOF }
func (s *endedStream) RecvMsg(any) error            { return s.err }

// EditResponse returns a stream that shows the response metadata of s after
// edits. header gets the response headers; trailer the trailers, and whether
// they are all there is, because the RPC ended without headers. Both get a map
// of their own to change, and either may be nil.
func EditResponse(s grpc.ClientStream, header func(metadata.MD), trailer func(md metadata.MD, only bool)) grpc.ClientStream {
	return &editedStream{ClientStream: s, header: header, trailer: trailer}
}

type editedStream struct {
	grpc.ClientStream
	header  func(metadata.MD)
	trailer func(metadata.MD, bool)
}

func (s *editedStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if md != nil && s.header != nil {
		md = md.Copy()
		s.header(md)
	}
	return md, err
}

func (s *editedStream) Trailer() metadata.MD {
	md := s.ClientStream.Trailer()
	if s.trailer == nil {
		return md
	}
	md = md.Copy()
	// The RPC has ended, so Header does not wait.
	header, _ := s.ClientStream.Header()
	s.trailer(md, header == nil)
	return md
}

// Exchange carries out a unary RPC on a stream: it sends req, and waits for
// reply and for the end.
func Exchange(s grpc.ClientStream, req, reply any) error {
	// io.EOF means that the RPC has ended; RecvMsg has its status.
	if err := s.SendMsg(req); err != nil && err != io.EOF {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	err := s.RecvMsg(reply)
	if err == io.EOF {
		return status.Error(codes.Internal, "the RPC ended with status OK and no response message")
	}
	return err
}
