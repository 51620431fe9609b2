package extproc

import "github.com/dynxds/dynxds/internal/grpcbridge"

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
	stopped                  // by the processor, which is to be told that no more follow
	draining                 // it has been told, and sends back what it still has
	passing                  // without the processor
)

// flow is a direction of messages. The mutex of the processor guards it.
type flow struct {
	passage passage
	// window is what the processor may be sent, in bytes. Above 0, that is a message of any size.
	window int64
	// credit is what the processor may send, and returned what it will be allowed to send again.
	credit, returned int64
	// queue has what goes on. Its head stays until that has gone.
	queue []item
	// lastSent says that the processor has been sent the end of the direction, and ended that it sends no more.
	lastSent, ended bool
}

// item is a message for the backend or the application, or the end of the requests.
type item struct {
	body *grpcbridge.Encoded // nil: only the end
	end  bool
	// own says that the processor has not seen it.
	own bool
}

func (f *flow) size() (n int64) {
	if i := f.queue[0]; i.body != nil && !i.own {
		n = int64(len(*i.body))
	}
	return n
}

// pop removes the head, which has gone, and reports whether the processor should be told of what it may send again. It is told
// of half a window at once.
func (f *flow) pop() (tell bool) {
	f.returned += f.size()
	f.queue[0] = item{}
	f.queue = f.queue[1:]
	return f.returned >= windowSize/2
}

// waiting returns how much of the processor is in the queue, in bytes.
func (f *flow) waiting() int64 { return windowSize - f.credit - f.returned }

// tell returns what the processor may send again.
func (f *flow) tell() (n int64) {
	n, f.returned = f.returned, 0
	f.credit += n
	return n
}
