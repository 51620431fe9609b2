package xdsclient

// Batch implements LocatorClient. Requests for all servers, ACKs included, wait
// until f returns. Batches may overlap; requests wait for all of them.
func (c *XDSClient) Batch(f func()) {
	c.mu.Lock()
	c.batches++
	c.mu.Unlock()
	defer c.endBatch()
	f()
}

func (c *XDSClient) endBatch() {
	c.mu.Lock()
	defer c.unlock()
	if c.batches--; c.batches > 0 {
		return
	}
	for _, ch := range c.channels {
		ch.stream.Notify()
	}
}
