package router

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/matching"
)

// NewRPC returns an RPC that is not routed yet, with the headers that gRPC will send because of its call options.
func (ch *Channel) NewRPC(ctx context.Context, method string, opts []grpc.CallOption) RPC {
	rpc := RPC{RPC: matching.RPC{Method: method, Authority: ch.Authority, Context: ctx}}
	if ch.Secure {
		rpc.Scheme = "https"
	}
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.AuthorityOverrideCallOption:
			if o.Authority != "" {
				rpc.Authority, rpc.chosen = o.Authority, true
			}
		case grpc.ContentSubtypeCallOption, grpc.ForceCodecCallOption, grpc.ForceCodecV2CallOption:
			if subtype := grpcbridge.RawCodecOf(opts).Name(); subtype != "" {
				rpc.ContentType = "application/grpc+" + subtype
			}
		}
	}
	return rpc
}

// callOptions are the options of an RPC, some of which say where its end is to be reported.
type callOptions []grpc.CallOption

// without appends to room the options that are not left out, and leaves room for three more.
func (o callOptions) without(room []grpc.CallOption, left func(grpc.CallOption) bool) []grpc.CallOption {
	return slices.DeleteFunc(append(slices.Grow(room, len(o)+3), o...), left)
}

// reports reports whether an option reports the end.
func reports(opt grpc.CallOption) bool {
	_, finish := opt.(grpc.OnFinishCallOption)
	return finish || writes(opt)
}

// writes reports whether an option names a variable that gRPC writes to at the end.
func writes(opt grpc.CallOption) bool {
	switch opt.(type) {
	case grpc.HeaderCallOption, grpc.TrailerCallOption, grpc.PeerCallOption:
		return true
	}
	return false
}

// report reports headers, trailers and peer of an RPC that has ended. origin is the context of the application, which may
// have the peer of an RPC that the application serves.
func (o callOptions) report(s grpc.ClientStream, origin context.Context) {
	for _, opt := range o {
		switch opt := opt.(type) {
		case grpc.HeaderCallOption:
			*opt.HeaderAddr, _ = s.Header()
		case grpc.TrailerCallOption:
			*opt.TrailerAddr = s.Trailer()
		case grpc.PeerCallOption:
			served, _ := peer.FromContext(origin)
			if p, ok := peer.FromContext(s.Context()); ok && p != served {
				*opt.PeerAddr = *p
			}
		}
	}
}
