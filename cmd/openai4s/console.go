package main

import (
	"io"
	"sync"
)

// console is standard error, or what stands in for it while a bar moves there.
type console struct {
	to io.Writer

	mu    sync.Mutex
	above io.Writer // puts lines above the bar; nil without one
}

// writeTo makes what is written go through above; nil ends that.
func (c *console) writeTo(above io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.above = above
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.above != nil {
		if n, err := c.above.Write(p); err == nil {
			return n, nil
		}
	}
	return c.to.Write(p)
}
