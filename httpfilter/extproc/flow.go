package extproc

import (
	procpb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// direction of messages.
type direction int

const (
	requests direction = iota
	responses
	directions
)

func (d direction) String() string { return [directions]string{"request_body", "response_body"}[d] }

// windowSize is the initial size of each window, in bytes.
const windowSize = 65536

// maxDrained bounds what waits of a processor that drains all, in bytes. It may have far more than a window to send back, and the filter,
// which has half-closed the stream, cannot give bytes back.
const maxDrained = 16 << 20

// passage is how messages of a direction pass the filter. It only moves on.
type passage int

const (
	processed passage = iota // the processor is sent them, and what it sends goes on in their place
	draining                 // it is sent no more, and sends back what it still has
	passing                  // without the processor
)

// flow is one direction of the RPC's messages. stream.mu guards the flow.
type flow struct {
	passage passage
	// window is what the processor may be sent, in bytes. Above 0, that is a message of any size.
	window int64
	// credit is what the processor may send, and returned what it will be allowed to send again.
	credit, returned int64
	// queue has what goes on. Its head stays until that has gone.
	queue []item
	// lastSent says that the end of the direction is with the processor, and ended that it is in the queue, or has gone.
	lastSent, ended bool
	// refused says that the backend takes no more requests, as the RPC has ended: RecvMsg has the status.
	refused bool
}

// item is a message for the backend or the application, or the end of the requests.
type item struct {
	body *grpcbridge.Encoded // nil: only the end
	end  bool
	cost int64 // of the processor's credit; 0 for what it has not seen
}

func (f *flow) put(i item) {
	f.queue = append(f.queue, i)
	f.ended = f.ended || i.end
}

// pass puts what the processor does not see into the queue.
func (f *flow) pass(b *procpb.HttpBody) {
	if b.GetDrainComplete() {
		return
	}
	i := item{end: b.GetEndOfStream()}
	if !b.GetEndOfStreamWithoutMessage() {
		i.body = (*grpcbridge.Encoded)(&b.Body)
	}
	f.put(i)
}

// pop removes the head, which has gone.
func (f *flow) pop() {
	f.returned += f.queue[0].cost
	f.queue[0] = item{}
	f.queue = f.queue[1:]
}

// owes reports whether a window update is due to the processor: each one gives back at least half a window.
func (f *flow) owes() bool { return f.returned >= windowSize/2 }

// drained reports whether no message can be lost if the processor ends its stream.
func (f *flow) drained() bool { return f.passage == passing || f.ended }

// waiting returns how much of the processor is in the queue, in bytes.
func (f *flow) waiting() int64 { return windowSize - f.credit - f.returned }

// tell returns what the processor may send again.
func (f *flow) tell() (n int64) {
	n, f.returned = f.returned, 0
	f.credit += n
	return n
}
