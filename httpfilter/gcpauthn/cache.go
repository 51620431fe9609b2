package gcpauthn

import (
	"container/list"
	"context"
	"sync"
)

// cache has the tokens of the audiences that were used last. It is safe for concurrent use.
type cache struct {
	ctx context.Context // of requests for tokens
	ask func(ctx context.Context, audience string) (jwt string, err error)

	mu    sync.Mutex
	size  int
	known map[string]*list.Element // whose Value is a *token
	used  list.List                // the last used first
}

func newCache(ctx context.Context, ask func(context.Context, string) (string, error)) *cache {
	return &cache{ctx: ctx, ask: ask, size: int(defaultCacheSize), known: make(map[string]*list.Element)}
}

// of returns the token for an audience, which is used now. The caller holds mu.
func (c *cache) of(audience string) *token {
	if e, ok := c.known[audience]; ok {
		c.used.MoveToFront(e)
		return e.Value.(*token)
	}
	t := &token{audience: audience}
	c.known[audience] = c.used.PushFront(t)
	c.fit()
	return t
}

func (c *cache) resize(size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size = size
	c.fit()
}

// fit forgets the tokens that were used least recently, until the others fit.
func (c *cache) fit() {
	for c.used.Len() > c.size {
		delete(c.known, c.used.Remove(c.used.Back()).(*token).audience)
	}
}
