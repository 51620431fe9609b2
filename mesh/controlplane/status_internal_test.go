package controlplane

import (
	"runtime"
	"testing"
)

// A stream that moves to another store while its status is asked for is read under the lock of that one.
func TestStatusLocksTheStoreOfTheStream(t *testing.T) {
	t.Parallel()
	for range 500 {
		first, second := NewStore(), NewStore()
		st := newStream(1, ProtocolSotW, first, nil, new(streamUsage), nil)
		first.mu.Lock()
		locked := make(chan *turns)
		go func() { locked <- st.lockToRead() }()
		runtime.Gosched()
		st.mu.Lock()
		st.store = second
		st.mu.Unlock()
		first.mu.Unlock()
		reading := <-locked
		if second.mu.TryLock() {
			t.Fatal("the store that the stream has moved to is not locked")
		}
		if !first.mu.TryLock() {
			t.Fatal("the store that the stream has left is locked")
		}
		first.mu.Unlock()
		reading.unlock()
		if !second.mu.TryLock() {
			t.Fatal("the store stays locked")
		}
	}
}
