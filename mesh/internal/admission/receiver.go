package admission

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"
)

// receiver is a connection that counts the bytes of its messages that have arrived in part, after the handshake.
//
// While its host has no room left, it is not read from, but for one connection of the host at a time. If a message takes too
// long, the connection is closed: HTTP/2 has a way to end one stream, but gRPC-Go has none for who is not its handler.
type receiver struct {
	net.Conn
	gate *Gate
	host string
	// done is closed with the connection.
	done chan struct{}

	mu       sync.Mutex
	closed   bool
	in, out  frames
	lastID   uint32
	messages map[uint32]*message
	// held is what all messages hold, and counted what the host's share has of it.
	held, counted int64
	hasTurn       bool
	// slow fires when the oldest message is late; nil while there is none.
	slow *time.Timer
}

// prefixSize is the size of what gRPC puts before a message: a flag, and the message's length.
const prefixSize = 5

// message is the present message of a stream that the client may still send on.
type message struct {
	prefix [prefixSize]byte
	have   int64
	began  time.Time
}

func (m *message) size() int64 {
	return prefixSize + int64(binary.BigEndian.Uint32(m.prefix[1:]))
}

func newReceiver(c net.Conn, gate *Gate, host string) *receiver {
	r := &receiver{Conn: c, gate: gate, host: host, done: make(chan struct{}), messages: map[uint32]*message{}}
	r.in = frames{on: r.arrived, end: r.ended}
	r.in.have, r.in.rest, r.in.header[3] = headerSize, prefaceSize, frameSettings // skips the preface
	r.out = frames{on: func(byte, uint32, []byte) {}, end: r.ended}
	return r
}

func (r *receiver) Read(p []byte) (int, error) {
	if err := r.await(); err != nil {
		return 0, err
	}
	n, err := r.Conn.Read(p)
	r.follow(&r.in, p[:n])
	return n, err
}

func (r *receiver) Write(p []byte) (int, error) {
	n, err := r.Conn.Write(p)
	r.follow(&r.out, p[:n])
	return n, err
}

// follow follows bytes of one direction.
func (r *receiver) follow(f *frames, b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		f.follow(b)
		r.count()
	}
}

func (r *receiver) ended(stream uint32) {
	if m := r.messages[stream]; m != nil {
		r.held -= m.have
		delete(r.messages, stream)
	}
}

// arrived adds a stream that the client opens (HEADERS of a stream that is there are its trailers), and what has arrived of its messages.
func (r *receiver) arrived(kind byte, stream uint32, part []byte) {
	if kind == frameHeaders && stream > r.lastID {
		r.lastID = stream
		r.messages[stream] = new(message)
	}
	m := r.messages[stream]
	if kind != frameData || m == nil {
		return // gRPC drops it, too
	}
	for len(part) > 0 {
		if m.have == 0 {
			m.began = time.Now()
		}
		n := int64(len(part))
		if m.have < prefixSize {
			n = int64(copy(m.prefix[m.have:], part))
		} else {
			n = min(n, m.size()-m.have)
		}
		m.have, r.held, part = m.have+n, r.held+n, part[n:]
		if m.have >= prefixSize && m.have == m.size() {
			r.held, m.have = r.held-m.have, 0
		}
	}
}

// count brings the host's share and the timer up to date.
func (r *receiver) count() {
	if r.held != r.counted { // mostly not, and all connections share the quota's lock
		r.gate.receiving.Add(r.host, r.held-r.counted)
		r.counted = r.held
	}
	if r.held == 0 && r.hasTurn {
		r.hasTurn = false
		r.gate.turns.Delete(r.host)
	}
	if r.held > 0 && r.slow == nil {
		r.slow = time.AfterFunc(r.gate.opts.MessageTime, r.check)
	}
}

// check closes the connection if a message is late.
func (r *receiver) check() {
	r.mu.Lock()
	oldest := time.Now()
	for _, m := range r.messages {
		if m.have > 0 && m.began.Before(oldest) {
			oldest = m.began
		}
	}
	left := r.gate.opts.MessageTime - time.Since(oldest)
	late := left <= 0 && !r.closed
	switch {
	case r.closed || r.held == 0:
		r.slow = nil
	case !late:
		r.slow.Reset(left)
	}
	r.mu.Unlock()
	if late {
		r.refuse(fmt.Errorf("a message has not arrived in %v", r.gate.opts.MessageTime))
	}
}

func (r *receiver) refuse(why error) {
	r.gate.opts.OnRefused("received_bytes", r.RemoteAddr(), why)
	r.Close()
}

// await waits while the connection holds a part of a message and its host has no room for more.
func (r *receiver) await() error {
	for {
		r.mu.Lock()
		var err error
		if r.held > 0 {
			err = r.gate.receiving.Check(r.host, 0)
		}
		if err != nil && !r.hasTurn {
			_, another := r.gate.turns.LoadOrStore(r.host, r)
			r.hasTurn = !another
		}
		held, hasTurn := r.held, r.hasTurn
		r.mu.Unlock()
		switch {
		case err == nil || hasTurn && held <= int64(r.gate.opts.MessageBytes+prefixSize):
			return nil
		case hasTurn:
			r.refuse(err)
			return net.ErrClosed
		}
		select {
		case <-time.After(100 * time.Millisecond): // who leaves room, or ends its turn, does not know who waits
		case <-r.done:
			return net.ErrClosed
		}
	}
}

func (r *receiver) Close() error {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		clear(r.messages)
		r.held = 0
		if r.count(); r.slow != nil {
			r.slow.Stop()
		}
		close(r.done)
	}
	r.mu.Unlock()
	return r.Conn.Close()
}
