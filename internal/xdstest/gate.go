package xdstest

import (
	"context"
	"sync"
)

// gate blocks callers while it is shut. The zero gate is open.
type gate struct {
	mu sync.Mutex
	// opened is closed when the gate opens again, nil while it is open.
	opened chan struct{}
}

// shut shuts the gate and returns a function that opens it, once. A gate that was shut twice is opened by
// either function.
func (g *gate) shut() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
	mine := g.opened
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.opened == mine {
			close(mine)
			g.opened = nil
		}
	}
}

// pass waits until the gate is open.
func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	if opened == nil {
		return nil
	}
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
