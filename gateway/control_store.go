package gateway

import (
	"net/http"
	"strconv"

	"go.etcd.io/bbolt"

	"github.com/openai4s/hpc/gateway/api"
)

// getStore streams a consistent copy of the store while the daemon runs. It opens no sealed start order, since the
// keys lie elsewhere, but it names everybody's workloads: administrators alone get it.
func (s *Server) getStore(w http.ResponseWriter, _ *http.Request, who caller) error {
	if !s.isAdmin(who) && who.UID != s.cfg.UID {
		return &api.Error{Status: http.StatusForbidden, Code: "not_allowed", Message: "only administrators back the store up"}
	}
	s.audit.decision("backup", who.UID, "", "store copied")
	return s.store.db.View(func(tx *bbolt.Tx) error {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.FormatInt(tx.Size(), 10))
		_, err := tx.WriteTo(w)
		if err != nil {
			s.log.Warn().Err(err).Msg("a backup was not finished")
		}
		return nil // the length tells the caller that it is short
	})
}
