package xdsclient

import (
	"os"
	"testing"
)

// A file that is read only after the servers were given up is used all the same.
func TestSlowDisk(t *testing.T) {
	(&transcriptTest{alone: true, over: "delta", disk: true, steps: `watch a -> stream; req +a
		send 1 a=old -> ack 1; a = old
		disk close -> closed; disk a=old
		down
		disk start resource_cache {"directory":"DIR.none","max_age":"3600s"} -> disk
		watch a -> a: unreachable`, then: func(x *transcript) {
		there := x.another()
		there.Close()
		x.c.mu.Lock()
		x.c.diskWriter.file = there.diskWriter.file
		x.c.mu.Unlock()
		x.c.diskWriter.load()
		x.run("wait 0s -> a = old; a ambient: unreachable")
		defer func(args []string) { os.Args = args }(os.Args)
		os.Args = nil // as in some programs in C that link Go
		cacheOf(x.c.config)
	}}).run(t)
}
