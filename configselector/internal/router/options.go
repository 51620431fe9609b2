package router

import (
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Headers are the headers of an RPC that come from its call options and not from its
// metadata.
type Headers struct {
	authority   string
	chosen      bool   // the application chose the authority
	contentType string // empty: "application/grpc"
	special     bool   // the headers differ from those of the channel's other RPCs
}

// Headers returns the headers that gRPC will send because of the call options of an RPC.
func (ch *Channel) Headers(opts []grpc.CallOption) Headers {
	h := Headers{authority: ch.Authority}
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.AuthorityOverrideCallOption:
			if o.Authority != "" {
				h.authority, h.chosen, h.special = o.Authority, true, true
			}
		case grpc.ContentSubtypeCallOption, grpc.ForceCodecCallOption, grpc.ForceCodecV2CallOption:
			h.special = true
		}
	}
	if h.special {
		if subtype := contentSubtype(opts); subtype != "" {
			h.contentType = "application/grpc+" + subtype
		}
	}
	return h
}

// HeadersOf returns the Headers of an RPC that is routed again.
func HeadersOf(authority, contentType string) Headers {
	return Headers{authority: authority, contentType: contentType}
}

// contentSubtype returns the subtype in the content-type that gRPC will send.
func contentSubtype(opts []grpc.CallOption) string {
	subtype, codec := "", ""
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.ContentSubtypeCallOption:
			subtype = o.ContentSubtype
		case grpc.ForceCodecCallOption:
			codec = o.Codec.Name()
		case grpc.ForceCodecV2CallOption:
			codec = o.CodecV2.Name()
		case grpc.CustomCodecCallOption:
			codec = ""
		}
	}
	if subtype == "" {
		subtype = codec
	}
	return strings.ToLower(subtype)
}

// outcome is where the application asked for the outcome of an RPC to be reported.
type outcome struct {
	headers, trailers []*metadata.MD
	peers             []*peer.Peer
	finish            []func(error)
}

// split moves the options that report the outcome from opts to o, and returns the others,
// with room for three more.
func (o *outcome) split(opts []grpc.CallOption) []grpc.CallOption {
	rest := make([]grpc.CallOption, 0, len(opts)+3)
	for _, opt := range opts {
		switch opt := opt.(type) {
		case grpc.HeaderCallOption:
			o.headers = append(o.headers, opt.HeaderAddr)
		case grpc.TrailerCallOption:
			o.trailers = append(o.trailers, opt.TrailerAddr)
		case grpc.PeerCallOption:
			o.peers = append(o.peers, opt.PeerAddr)
		case grpc.OnFinishCallOption:
			o.finish = append(o.finish, opt.OnFinish)
		default:
			rest = append(rest, opt)
		}
	}
	return rest
}

// splitShared is split for the options that concurrent attempts share: each attempt would write to the same
// variables. Options that are callbacks stay.
func (o *outcome) splitShared(opts []grpc.CallOption) []grpc.CallOption {
	rest := o.split(opts)
	for _, f := range o.finish {
		rest = append(rest, grpc.OnFinish(f))
	}
	return rest
}

// report reports headers, trailers and peer of an RPC that has ended.
func (o *outcome) report(s grpc.ClientStream) {
	if len(o.headers) > 0 {
		md, _ := s.Header()
		for _, addr := range o.headers {
			*addr = md
		}
	}
	if len(o.trailers) > 0 {
		md := s.Trailer()
		for _, addr := range o.trailers {
			*addr = md
		}
	}
	if len(o.peers) > 0 {
		if p, ok := peer.FromContext(s.Context()); ok {
			for _, addr := range o.peers {
				*addr = *p
			}
		}
	}
}

func (o *outcome) finished(err error) {
	for _, f := range o.finish {
		f(err)
	}
}

// codecOf returns the codec that gRPC will use for the messages of an RPC, or nil if it has
// none.
func codecOf(opts []grpc.CallOption) encoding.CodecV2 {
	var codec encoding.CodecV2
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.ForceCodecV2CallOption:
			codec = o.CodecV2
		case grpc.ForceCodecCallOption:
			codec = codecV1{o.Codec}
		case grpc.CustomCodecCallOption:
			codec = codecV1{namelessCodec{o.Codec}}
		}
	}
	if codec != nil {
		return codec
	}
	subtype := contentSubtype(opts)
	if subtype == "" {
		subtype = "proto"
	}
	if codec = encoding.GetCodecV2(subtype); codec != nil {
		return codec
	}
	if v1 := encoding.GetCodec(subtype); v1 != nil {
		return codecV1{v1}
	}
	return nil
}
