package xdsclient

import (
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// sotw is the state-of-the-world variant: each request carries all names of its
// type, and each response for a type with FullStateInSotW all its resources.
type sotw struct{}

func (sotw) method() string {
	return "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
}

func (sotw) encode(r *request) ([]byte, error) {
	message := &discoveryv3.DiscoveryRequest{
		VersionInfo:   r.version,
		Node:          r.node,
		ResourceNames: r.names,
		TypeUrl:       r.typeURL,
		ResponseNonce: r.nonce,
	}
	if r.fault != "" {
		message.ErrorDetail = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: r.fault}
	}
	return proto.Marshal(message)
}

// The fields of envoy.service.discovery.v3.DiscoveryResponse that matter.
const (
	sotwVersion   = 1
	sotwResources = 2
	sotwTypeURL   = 4
	sotwNonce     = 5
)

func (sotw) decode(message []byte) (*response, error) {
	r := &response{fullState: true}
	for b := message; len(b) > 0; {
		f, rest, err := nextField(b)
		if err != nil {
			return nil, fmt.Errorf("malformed DiscoveryResponse: %w", err)
		}
		b = rest
		var text *string
		switch {
		case f.kind != protowire.BytesType:
			continue
		case f.number == sotwVersion:
			text = &r.version
		case f.number == sotwTypeURL:
			text = &r.typeURL
		case f.number == sotwNonce:
			text = &r.nonce
		default:
			continue
		}
		if !utf8.Valid(f.value) {
			return nil, errors.New("malformed DiscoveryResponse: not valid UTF-8")
		}
		*text = string(f.value)
	}
	if r.typeURL == "" {
		return nil, errors.New("malformed DiscoveryResponse: type_url is empty")
	}
	r.resources = sotwIterate(message, r.typeURL)
	return r, nil
}

// sotwIterate reads the resources of a message that decode found well-formed.
// They are read anew instead of listed, because a hostile message can hold tens
// of millions of empty ones.
func sotwIterate(message []byte, typeURL string) iter.Seq[wireResource] {
	return func(yield func(wireResource) bool) {
		index := 0
		for b := message; len(b) > 0; {
			f, rest, err := nextField(b)
			if err != nil {
				return
			}
			b = rest
			if f.number != sotwResources || f.kind != protowire.BytesType {
				continue
			}
			if !yield(unwrap(index, f.value, typeURL)) {
				return
			}
			index++
		}
	}
}
