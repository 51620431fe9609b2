package soak

import (
	"context"
	"time"

	"github.com/dynxds/dynxds/internal/await"
)

const (
	// briskest and slowest bound the time between two RPCs of a kind.
	briskest = 40 * time.Millisecond
	slowest  = time.Minute
	// calming is how much of the time since the last event an RPC waits for the next: there are
	// many RPCs after an event, and few in the hours between.
	calming = 0.15
)

// pacing says when the next RPC is due.
type pacing struct {
	state await.State
	// stirred is when something happened last.
	stirred time.Time
}

// stir says that something has happened, so that RPCs are worth their while.
func (p *pacing) stir() { p.state.Change(func() { p.stirred = time.Now() }) }

// rest waits between two RPCs of a kind.
func (p *pacing) rest(ctx context.Context) {
	var stirred time.Time
	p.state.Look(func() { stirred = p.stirred })
	calm := time.Since(stirred)
	time.Sleep(briskest)
	ctx, cancel := context.WithTimeout(ctx, min(slowest, time.Duration(calming*float64(calm)))-briskest)
	defer cancel()
	_ = p.state.Wait(ctx, func() bool { return p.stirred != stirred })
}
