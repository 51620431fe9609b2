package controlplane

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// patience is how long a response waits for others to be read, if they have reached their limit.
const patience = 15 * time.Second

// replies are the responses of a stream that the client may not have read yet: the last one, and the one that is
// being sent. gRPC takes the next one when the one before has left, and not before, if they are large. So the client
// has read a response if it answers it, or is sent another one after the next.
type replies struct {
	usage *streamUsage

	mu sync.Mutex
	// nonce and size are those of the last response that was sent; size is 0 if it was read.
	nonce string
	size  int64
	// reserved is what the next response has already. Only push uses it.
	reserved int64
}

// sent replaces the last response.
func (r *replies) sent(nonce string, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usage.give(ofReplies, r.size)
	r.nonce, r.size = nonce, size
}

// answered ends the last response if the client has read it.
func (r *replies) answered(nonce string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size > 0 && nonce == r.nonce {
		r.usage.give(ofReplies, r.size)
		r.size = 0
	}
}

// reply is a response of either protocol.
type reply interface {
	proto.Message
	GetNonce() string
	GetResourceErrors() []*discoverypb.ResourceError
}

// errorBytes is about what an error of a response takes beside its bytes, and so what is reserved for a topic that is due: if it has
// a resource, that is there anyway.
const errorBytes = 400

// reserve waits for room for a response, before it is made: many that are made and wait for room would take the memory that they wait for.
func (s *stream) reserve(ctx context.Context) error {
	size := s.usage.atMost(ofReplies, int64(s.topicsDue())*errorBytes)
	if err := s.replies.awaitRoom(ctx, size); err != nil {
		return err
	}
	s.replies.reserved = size
	return nil
}

// topicsDue returns about how many topics the next responses have.
func (s *stream) topicsDue() (n int) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.dueSubs {
		n += len(sub.items.now.m) + min(len(sub.items.later.m), s.store.pace.due)
	}
	return n
}

// unreserve returns what is reserved beyond a size, and what is left to take for it.
func (r *replies) unreserve(size int64) (more int64) {
	reserved := r.reserved
	r.reserved = 0
	r.usage.give(ofReplies, max(0, reserved-size))
	return max(0, size-reserved)
}

// send sends a response when there is room for it.
func (r *replies) send(wire grpc.ServerStream, m reply) error {
	size := r.usage.atMost(ofReplies, int64(proto.Size(m)+errorBytes*len(m.GetResourceErrors())))
	if more := r.unreserve(size); more > 0 {
		if err := r.awaitRoom(wire.Context(), more); err != nil {
			return err // with which the stream ends, and all that it holds
		}
	}
	err := wire.SendMsg(m)
	r.sent(m.GetNonce(), size)
	return err
}

// awaitRoom waits until the responses that others have not read leave room. It looks at growing intervals: if it
// were told, all that wait would be told each time, and one would have the room.
func (r *replies) awaitRoom(ctx context.Context, size int64) error {
	tried := r.usage.try(ofReplies, size)
	for wait, began := time.Millisecond, time.Now(); tried != nil && time.Since(began) < patience; wait = min(2*wait, 500*time.Millisecond) {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		tried = r.usage.try(ofReplies, size)
	}
	if tried == nil {
		return nil
	}
	return r.usage.take(ofReplies, size)
}
