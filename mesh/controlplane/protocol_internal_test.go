package controlplane

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// testStream is a stream of either protocol, without goroutines.
type testStream struct {
	*stream
	// sotw or delta is nil.
	sotw  *sotw
	delta *delta
}

func openTestStream(ctx context.Context, id uint64, protocol Protocol, store *Store, opts *Options, u *streamUsage) testStream {
	st := newStream(ctx, id, protocol, store, opts, u)
	if protocol == ProtocolDelta {
		return testStream{st, nil, &delta{st}}
	}
	return testStream{st, &sotw{stream: st}, nil}
}

// push sends what is due: over SotW, too, as responses of delta with the same content.
func (s *testStream) push(send func(*discoverypb.DeltaDiscoveryResponse) error) error {
	if s.delta != nil {
		return push(s.delta.stream, s.delta, send)
	}
	return push(s.sotw.stream, s.sotw, func(all *discoverypb.DiscoveryResponse) error {
		resp := &discoverypb.DeltaDiscoveryResponse{
			TypeUrl: all.TypeUrl, Nonce: all.Nonce, SystemVersionInfo: all.VersionInfo, ResourceErrors: all.ResourceErrors,
		}
		for _, packed := range all.Resources {
			r := &discoverypb.Resource{Resource: packed}
			if packed.TypeUrl == typeurl.Wrapper {
				if err := proto.Unmarshal(packed.Value, r); err != nil {
					return err
				}
			}
			resp.Resources = append(resp.Resources, r)
		}
		return send(resp)
	})
}
