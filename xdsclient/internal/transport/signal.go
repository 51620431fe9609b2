package transport

// Signal wakes the goroutine that waits for it. It has a buffer of one, so that no wake-up is lost.
type Signal chan struct{}

// NewSignal returns a Signal that was not given.
func NewSignal() Signal { return make(Signal, 1) }

// Give wakes the goroutine, now or when it waits next.
func (s Signal) Give() {
	select {
	case s <- struct{}{}:
	default:
	}
}
