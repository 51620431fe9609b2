package statuspage

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"net/http"
	"sync"
	"time"
)

// events follows the sections that are asked for, as server-sent events: one named after each
// section, with its content, when the stream begins and whenever it has changed. The first
// event, "hello", has the time. It ends with the request, or when the server shuts down.
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold the events back
	if r.Method == http.MethodHead {
		return
	}
	select {
	case h.streams <- struct{}{}:
		defer func() { <-h.streams }()
	default:
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%d browsers follow the page already", cap(h.streams)))
		return
	}
	s := &stream{handler: h, control: http.NewResponseController(w), w: w, sent: make(map[string]uint64)}
	// Not supported by all servers: then their own timeouts end the stream, and the browser
	// opens another one.
	_ = s.control.SetReadDeadline(time.Time{})
	s.follow(r, q, h.shutdown(r))
}

// stream is what one browser follows.
type stream struct {
	handler *handler
	control *http.ResponseController
	w       http.ResponseWriter
	// sent has a hash of what was sent last of each section.
	sent map[string]uint64
	// wrote is when something was sent last.
	wrote time.Time
	// last keeps the last snapshot.
	last *snapshot
}

// follow sends what changes until the request ends, the server shuts down or the browser does
// not read.
func (s *stream) follow(r *http.Request, q *query, shutdown <-chan struct{}) {
	h := s.handler
	ticks := time.NewTicker(h.refresh)
	defer ticks.Stop()
	if s.event("hello", fmt.Appendf(nil, `{"now":%q}`, time.Now().Format(time.RFC3339Nano))) != nil {
		return
	}
	for {
		if s.send(&view{ctx: r.Context(), handler: h, snap: h.snapshots.get(h), query: q}) != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-shutdown:
			return
		case <-ticks.C:
		}
	}
}

// send sends the sections that have changed, or a comment if nothing was sent for long.
func (s *stream) send(v *view) error {
	s.last = v.snap
	for _, name := range v.query.sections {
		content, err := json.Marshal(v.section(name))
		if err != nil {
			return err
		}
		sum := maphash.Bytes(s.handler.seed, content)
		if old, ok := s.sent[name]; ok && old == sum {
			continue
		}
		s.sent[name] = sum
		if err := s.event(name, content); err != nil {
			return err
		}
	}
	if time.Since(s.wrote) < s.handler.heartbeat {
		return nil
	}
	return s.write([]byte(": heartbeat\n\n"))
}

// event sends an event. The content is one line: JSON escapes the ends of lines.
func (s *stream) event(name string, content []byte) error {
	return s.write(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, content))
}

func (s *stream) write(content []byte) error {
	s.wrote = time.Now()
	_ = s.control.SetWriteDeadline(s.wrote.Add(s.handler.patience))
	if _, err := s.w.Write(content); err != nil {
		return err
	}
	return s.control.Flush()
}

// shutdown returns what is closed when the server of a request shuts down. Shutdown waits for
// requests without ending their contexts, so it would wait for streams for ever.
func (h *handler) shutdown(r *http.Request) <-chan struct{} {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	down, ok := h.servers[server]
	if !ok {
		down = make(chan struct{})
		h.servers[server] = down
		server.RegisterOnShutdown(sync.OnceFunc(func() { close(down) }))
	}
	return down
}
