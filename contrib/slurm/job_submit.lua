-- Refuses a batch job that would hand a credential to Slurm. Slurm keeps the environment that a job is submitted with:
-- in the controller's state, on the first node, and with AccountingStoreFlags=job_env in accounting, where
-- `sacct --env-vars` shows it.
--
-- Install: copy this file beside slurm.conf on the controller's hosts, set JobSubmitPlugins=lua there, and run
-- `scontrol reconfigure`. Tested with Slurm 22.05.
--
-- Jobs that openai4s submits pass: they are submitted with --export=NONE, and secrets of a job file's [secrets] travel
-- over the authenticated connection to each rank.

-- Variables that must not be in a job's environment. A plugin can ask for a name, and not for all names there are.
local credentials = {
	"ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET", "COMET_API_KEY",
	"DATABASE_URL", "DOCKER_PASSWORD", "GEMINI_API_KEY", "GH_TOKEN", "GITHUB_TOKEN", "GITLAB_TOKEN", "GOOGLE_API_KEY",
	"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "KAGGLE_KEY", "MLFLOW_TRACKING_PASSWORD", "NGC_API_KEY", "NPM_TOKEN",
	"OPENAI_API_KEY", "PGPASSWORD", "PYPI_TOKEN", "REPLICATE_API_TOKEN", "SLACK_TOKEN", "SLURM_JWT", "VAULT_TOKEN",
	"WANDB_API_KEY",
}

-- What a name looks like that a script's own --export=NAME=value sets.
local shapes = { "TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_?KEY", "ACCESS_KEY", "PRIVATE_KEY", "CREDENTIAL" }

local function shaped(name)
	local upper = name:upper()
	for _, shape in ipairs(shapes) do
		if upper:find(shape) then
			return true
		end
	end
	return false
end

local function in_environment(job)
	if job.environment == nil then
		return nil
	end
	for _, name in ipairs(credentials) do
		local value = job.environment[name]
		if value ~= nil and value ~= "" then
			return name
		end
	end
	return nil
end

local function in_script(script)
	if script == nil then
		return nil
	end
	for line in script:gmatch("[^\n]+") do
		local list = line:match("^#SBATCH%s.-%-%-export[=%s]%s*(.*)$")
		if list ~= nil then
			for name in list:gmatch("([%a_][%w_]*)=") do
				if shaped(name) then
					return name
				end
			end
		end
	end
	return nil
end

function slurm_job_submit(job, partitions, uid)
	if job.script == nil then -- salloc and srun: Slurm keeps no environment of theirs
		return slurm.SUCCESS
	end
	local name = in_script(job.script) or in_environment(job)
	if name == nil then
		return slurm.SUCCESS
	end
	slurm.log_info("job_submit/lua: refused a job of uid %d that has %s in its environment", uid, name)
	slurm.log_user("%s would be kept by Slurm with this job's environment. Submit with --export=NONE, or unset it first; openai4s hands secrets to a job's ranks by [secrets] in the job file", name)
	return slurm.ERROR
end

function slurm_job_modify(job, record, partitions, uid)
	return slurm.SUCCESS
end

return slurm.SUCCESS
