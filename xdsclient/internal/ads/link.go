package ads

import (
	"errors"
	"fmt"
	"time"

	"github.com/dynxds/dynxds/internal/tlsadvice"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// Link is how a client stands with a server. The zero value is one that was not tried yet.
type Link struct {
	state linkState
	// failure is why the server counts as unreachable, or nil.
	failure error
	// opened is when the last stream was opened.
	opened time.Time
	// shown is what connections have shown of the TLS that the server wants.
	shown tlsadvice.Server
}

type linkState int

const (
	// linkNew: no stream was opened yet.
	linkNew linkState = iota
	// linkConnecting: there is no stream, and none has failed since the server last answered.
	linkConnecting
	// linkOpen: a stream is open on which the server has not answered.
	linkOpen
	// linkAnswered: a stream is open on which the server has answered.
	linkAnswered
	// linkDown: the last attempt failed without an answer.
	linkDown
	// linkClosed: the stream is not needed any more.
	linkClosed
)

// Opened notes that a stream is open.
func (l *Link) Opened() {
	l.state, l.opened = linkOpen, time.Now()
	l.shown.Ready()
}

// Answered notes that the server answered on the stream, which ends a connectivity error. It
// reports whether there was one.
func (l *Link) Answered() (recovered bool) {
	recovered = l.failure != nil
	l.state, l.failure = linkAnswered, nil
	return recovered
}

// An End is the meaning of the end of a stream.
type End int

const (
	// EndAfterAnswer: the server had answered, so nothing is wrong.
	EndAfterAnswer End = iota
	// EndSoon: the server had answered, and ended the stream without an error soon after it was opened. So do servers
	// that serve one stream, when another client opens one, and two clients take it from each other:
	//
	//	client A opens a stream and is answered
	//	client B opens a stream: the server ends that of A
	//	client A opens a stream: the server ends that of B
	EndSoon
	// EndUnreachable: the server became unreachable.
	EndUnreachable
	// EndOtherReason: the server is still unreachable, now for another reason.
	EndOtherReason
	// EndSameReason: the server is still unreachable, for the same reason.
	EndSameReason
)

// soon is the life of a stream below which its end is EndSoon.
const soon = 10 * time.Second

// Ended notes that a stream ended, or could not be opened. That is a connectivity error only
// if the server did not answer on it (gRFC A57, "Handling ADS Stream Termination"). advice is what to do if the server wants TLS;
// "": the client offers it.
func (l *Link) Ended(err error, advice string) End {
	if l.state == linkAnswered {
		l.state = linkConnecting
		if errors.Is(err, transport.ErrNoAnswer) && time.Since(l.opened) < soon {
			return EndSoon
		}
		return EndAfterAnswer
	}
	last := l.failure
	l.state, l.failure = linkDown, transport.ADSReason(err)
	if said := l.shown.Failed(err); said != "" && advice != "" {
		l.failure = fmt.Errorf("%w; %s: %s", l.failure, said, advice)
	}
	switch {
	case last == nil:
		return EndUnreachable
	case last.Error() != l.failure.Error():
		return EndOtherReason
	default:
		l.failure = last
		return EndSameReason
	}
}

// Restart notes that the next stream is opened at once, as the last one was of a protocol that
// the server does not speak.
func (l *Link) Restart() { l.state = linkConnecting }

// Close notes that the stream is not needed any more.
func (l *Link) Close() { l.state = linkClosed }

// Closed reports whether Close was called.
func (l *Link) Closed() bool { return l.state == linkClosed }

// Streaming reports whether a stream is open.
func (l *Link) Streaming() bool { return l.state == linkOpen || l.state == linkAnswered }

// Unanswered reports whether a stream is open on which the server has not answered.
func (l *Link) Unanswered() bool { return l.state == linkOpen }

// Healthy reports whether the server is not known to be unreachable.
func (l *Link) Healthy() bool { return l.failure == nil }

// Unreachable reports whether the server cannot be reached (gRFC A57). While a stream is open
// on which it has not answered, that is undecided.
func (l *Link) Unreachable() bool { return l.failure != nil && !l.Streaming() }

// Connected reports whether a stream works, as gRFC A78 defines it: one was opened, and the
// last one did not fail before the server answered.
func (l *Link) Connected() bool { return l.failure == nil && l.state != linkNew }

// Failure is why the server counts as unreachable. It is nil again when the server answers.
func (l *Link) Failure() error { return l.failure }
