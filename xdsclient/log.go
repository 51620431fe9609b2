package xdsclient

import (
	"fmt"

	"google.golang.org/grpc/grpclog"
)

var logger = grpclog.Component("dynxds")

// logLine is a line of the log that waits until the lock is released, because
// writing it may block.
type logLine struct {
	write func(...any)
	text  string
}

// infof and warningf add a line to the log. The caller holds the lock and
// releases it with unlock.
func (c *XDSClient) infof(format string, args ...any) {
	c.log = append(c.log, logLine{logger.Info, fmt.Sprintf(format, args...)})
}

func (c *XDSClient) warningf(format string, args ...any) {
	c.log = append(c.log, logLine{logger.Warning, fmt.Sprintf(format, args...)})
}

// unlock releases the lock after a change and then writes the log.
func (c *XDSClient) unlock() {
	lines := c.log
	c.log = nil
	c.census.changes++
	c.mu.Unlock()
	for _, l := range lines {
		l.write(l.text)
	}
}
